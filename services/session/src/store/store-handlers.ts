import { type GrpcHandlers, type ServiceDefinition, translateStoreError } from '@margay/platform';

type AnyHandler = (...values: unknown[]) => unknown;

/** The same unary and server-streaming handlers, failures of the store translated for their callers. */
export function storeHandlers<D extends ServiceDefinition>(handlers: GrpcHandlers<D>): GrpcHandlers<D> {
  const translated = Object.entries(handlers as Record<string, AnyHandler>).map(([name, handler]) => [
    name,
    (...values: unknown[]) => {
      const result = handler(...values);
      if (isIterable(result)) return iterate(result);
      return result instanceof Promise ? result.catch(rethrow) : result;
    },
  ]);
  return Object.fromEntries(translated) as GrpcHandlers<D>;
}

function isIterable(value: unknown): value is AsyncIterable<unknown> {
  return typeof value === 'object' && value !== null && Symbol.asyncIterator in value;
}

async function* iterate(values: AsyncIterable<unknown>): AsyncIterable<unknown> {
  try {
    yield* values;
  } catch (error) {
    rethrow(error);
  }
}

function rethrow(error: unknown): never {
  throw translateStoreError(error);
}
