import { NotFoundError } from '@margay/errors';
import { MongoNetworkError } from 'mongodb';
import { storeHandlers } from './store-handlers';

type AnyHandlers = Record<string, (...values: unknown[]) => unknown>;
const wrapped = (handlers: AnyHandlers): AnyHandlers => storeHandlers(handlers as never) as unknown as AnyHandlers;

describe('handlers over a store', () => {
  it('tell that the store is away, and what else fails as it is', async () => {
    const handlers = wrapped({
      read: () => Promise.reject(new MongoNetworkError('connection 3 to 127.0.0.1:1 closed')),
      find: () => Promise.reject(new NotFoundError('x_not_found', 'no x')),
      give: () => Promise.resolve(5),
    });
    await expect(handlers['read']?.()).rejects.toMatchObject({ code: 'UNAVAILABLE', reason: 'store_unavailable' });
    await expect(handlers['find']?.()).rejects.toMatchObject({ reason: 'x_not_found' });
    await expect(handlers['give']?.()).resolves.toBe(5);
  });

  it('tell it in the middle of a stream, too', async () => {
    const handlers = wrapped({
      async *list() {
        yield 1;
        throw new MongoNetworkError('closed');
      },
    });
    const got: unknown[] = [];
    const read = async (): Promise<void> => {
      for await (const item of handlers['list']?.() as AsyncIterable<unknown>) got.push(item);
    };
    await expect(read()).rejects.toMatchObject({ reason: 'store_unavailable' });
    expect(got).toEqual([1]);
  });
});
