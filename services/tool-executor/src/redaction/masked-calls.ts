import type { executorPb, RunGrant } from '@margay/contracts';
import { errorOf, isMargayError } from '@margay/errors';
import { SecretStream, type Logger, type Masked, type SecretMatcher } from '@margay/platform';
import { Counter, type Registry } from 'prom-client';
import type { TenantMatchers } from './tenant-matchers';

type Response = executorPb.ExecuteResponse;
type Output = executorPb.ExecuteOutput;

/** Of each tenant, used for nothing: see docs/secrets.md. */
const CANARY = '_canary';

/** Keeps secrets out of what tools say, before a model or the log of the session sees it. */
export class MaskedCalls {
  private readonly masked: Counter<'kind'>;

  constructor(
    private readonly matchers: Pick<TenantMatchers, 'of'>,
    registry: Registry,
    private readonly logger: Logger,
  ) {
    this.masked = new Counter({
      name: 'margay_tool_secrets_masked_total',
      help: 'Calls of tools in whose output secrets were masked',
      labelNames: ['kind'],
      registers: [registry],
    });
    // The first one must be seen to grow, or no alert tells of it.
    for (const kind of ['secret', 'canary']) this.masked.inc({ kind }, 0);
  }

  /** The same call without secrets. Its output is late by some bytes, which might begin one. */
  async *mask(calls: AsyncIterable<Response>, grant: RunGrant, callId: string): AsyncIterable<Response> {
    // Asked for while the call begins; where it fails the call can be attached to again.
    const asked = this.matchers.of(grant.tenantId);
    asked.catch(() => undefined);
    const found = new Set<string>();
    try {
      yield* new CallMask(asked, [grant.principal], found).mask(calls);
    } finally {
      if (found.size > 0) this.tell(found, grant, callId);
    }
  }

  /** What somebody said, with what it refers to. */
  async maskText(text: string, { tenantId, principal }: RunGrant): Promise<string> {
    return (await this.matchers.of(tenantId)).maskText(text, [principal]).value;
  }

  private tell(found: Set<string>, { tenantId, sessionId, runId }: RunGrant, toolCallId: string): void {
    const where = { tenantId, sessionId, runId, place: 'tool', toolCallId };
    if (found.delete(CANARY)) {
      this.masked.inc({ kind: 'canary' });
      const target = { type: 'secret', name: CANARY };
      this.logger.error({ audit: { action: 'secret.canary_hit', ...where, target } }, 'a canary was met');
    }
    if (found.size === 0) return;
    this.masked.inc({ kind: 'secret' });
    const targets = [...found].map((name) => ({ type: 'secret', name }));
    this.logger.warn({ audit: { action: 'secret.masked', ...where, targets } }, 'secrets were masked');
  }
}

/** One call's worth of it. */
class CallMask {
  private readonly streams = new Map<string, { stream: SecretStream; end: number }>();

  constructor(
    private readonly asked: Promise<SecretMatcher>,
    private readonly owners: readonly string[],
    private readonly found: Set<string>,
  ) {}

  async *mask(calls: AsyncIterable<Response>): AsyncIterable<Response> {
    try {
      for await (const response of calls) yield* this.passed(response, await this.asked);
    } catch (error) {
      throw this.maskedError(error, await this.asked);
    }
  }

  private *passed({ message }: Response, matcher: SecretMatcher): Iterable<Response> {
    switch (message?.$case) {
      case 'output': {
        const output = this.output(message.value, matcher);
        if (output) yield { message: { $case: 'output', value: output } };
        return;
      }
      case 'finished': {
        yield* this.rest();
        const resultJson = this.noted(matcher.maskJson(message.value.resultJson, this.owners));
        return yield { message: { ...message, value: { ...message.value, resultJson } } };
      }
      case 'notice': {
        const payloadJson = this.noted(matcher.maskJson(message.value.payloadJson, this.owners));
        return yield { message: { ...message, value: { ...message.value, payloadJson } } };
      }
      default:
        yield { message };
    }
  }

  private output({ stream: name, offset, bytes }: Output, matcher: SecretMatcher): Output | undefined {
    const known = this.streams.get(name);
    const stream = known?.stream ?? new SecretStream(matcher, this.owners, (names) => this.note(names));
    this.streams.set(name, { stream, end: offset + bytes.length });
    const passed = stream.push(bytes);
    return passed.length === 0 ? undefined : { stream: name, offset, bytes: passed };
  }

  /** What was held back of outputs that have ended. */
  private *rest(): Iterable<Response> {
    for (const [name, { stream, end }] of this.streams) {
      const bytes = stream.end();
      if (bytes.length > 0)
        yield { message: { $case: 'output', value: { stream: name, offset: end - bytes.length, bytes } } };
    }
    this.streams.clear();
  }

  private maskedError(error: unknown, matcher: SecretMatcher): unknown {
    if (!isMargayError(error)) return error;
    const message = this.noted(matcher.maskText(error.message, this.owners));
    return message === error.message ? error : errorOf(error.code, error.reason, message);
  }

  private noted<T>({ value, names }: Masked<T>): T {
    this.note(names);
    return value;
  }

  private note(names: ReadonlySet<string>): void {
    for (const name of names) this.found.add(name);
  }
}
