import type { Command, FinishCommand, Head, RunRequest } from '@margay/log';
import type { Logger, SecretMatcher } from '@margay/platform';
import { CANARY, tellCanaryHit, type SecretHits } from './canary';
import type { TenantPrints } from './tenant-prints';

/** Masks what people, models and tools have said before it is stored. */
export interface CommandMasking {
  /** @returns the same object where it holds no secret */
  mask<C extends Command>(command: C, place: MaskedPlace): Promise<C>;
}

export interface MaskedPlace {
  tenantId: string;
  sessionId: string;
  /** The head that is remembered: of its run, the member's own secrets are looked for, too. */
  head?: Head | undefined;
}

type Mask = <T>(value: T) => T;

/** Kinds of commands that hold no texts of anybody. */
const SILENT = new Set<Command['kind']>(['interrupt', 'cancel', 'terminate', 'claim', 'takeover', 'park', 'expire', 'release']); // prettier-ignore

const KEPT_OF_CALLS = new Set(['callId', 'providerCallId', 'name']);

export const mayHoldTexts = ({ kind }: Command): boolean => !SILENT.has(kind);

/** No secret is to come so far; one that does is masked, and somebody is told. */
export class CommitMasking implements CommandMasking {
  constructor(
    private readonly prints: Pick<TenantPrints, 'of'>,
    private readonly hits: SecretHits,
    private readonly logger: Logger,
  ) {}

  async mask<C extends Command>(command: C, { tenantId, sessionId, head }: MaskedPlace): Promise<C> {
    if (!mayHoldTexts(command)) return command;
    const { matcher } = await this.prints.of(tenantId);
    if (matcher.isEmpty) return command;
    const owners = ownersOf(command, head);
    const names = new Set<string>();
    const masked = maskCommand(command, maskOf(matcher, owners, names));
    if (names.size === 0) return command;
    this.tell(tenantId, sessionId, command.kind, names);
    return masked;
  }

  private tell(tenantId: string, sessionId: string, kind: string, names: Set<string>): void {
    if (names.delete(CANARY)) tellCanaryHit(this.logger, this.hits, { tenantId, sessionId, place: 'commit' });
    for (const name of names) {
      this.hits.found('secret');
      const target = { type: 'secret', name };
      this.logger.warn({ audit: { action: 'secret.masked', tenantId, sessionId, place: 'commit', kind, target } }, 'a secret was masked'); // prettier-ignore
    }
  }
}

/** Members whose own secrets may have come into this. */
function ownersOf(command: Command, head: Head | undefined): string[] {
  const said = 'run' in command ? command.run.principal : undefined;
  const late = command.kind === 'answer' ? command.late?.principal : undefined;
  const owner = command.kind === 'create' ? command.owner : undefined;
  return [said, late, owner, head?.run?.principal].filter((name) => name !== undefined);
}

function maskOf(matcher: SecretMatcher, owners: readonly string[], found: Set<string>): Mask {
  return (value) => {
    const masked = matcher.maskValue(value, owners);
    for (const name of masked.names) found.add(name);
    return masked.value;
  };
}

/** What holds everything together, such as ids and kinds, is left alone, whatever somebody calls a secret. */
function maskCommand<C extends Command>(command: C, mask: Mask): C {
  const whole: Command = command;
  switch (whole.kind) {
    case 'create':
    case 'bind':
      return { ...command, context: mask(whole.context) };
    case 'accept':
    case 'message':
    case 'recover':
      return { ...command, run: maskRun(whole.run, mask) };
    case 'answer': {
      const said = { answers: mask(whole.answers), notes: mask(whole.notes), text: mask(whole.text) };
      return { ...command, ...said, ...(whole.late && { late: maskRun(whole.late, mask) }) };
    }
    case 'step':
    case 'finish': {
      const events = whole.events.map((event) => ({ ...event, payload: maskFields(event.payload, mask) }));
      const records = whole.records.map(({ kind, ...rest }) => ({ kind, ...maskFields(rest, mask) }));
      const end = whole.kind === 'finish' ? { text: mask(whole.text), completion: maskEnd(whole, mask) } : {};
      return { ...command, events, records, ...end };
    }
    default:
      return command;
  }
}

/** Their own names are ours, also those of the calls within; what reads them would not find its way. */
function maskFields<T extends object>(fields: T, mask: Mask): T {
  const masked = Object.entries(fields).map(([name, value]: [string, unknown]) => {
    const isCalls = name === 'toolCalls' && Array.isArray(value);
    return [name, isCalls ? value.map((call: object) => maskCall(call, mask)) : mask(value)];
  });
  return Object.fromEntries(masked) as T;
}

/** A call keeps what it is told apart by, and the name of its tool: a provider refuses names that are none. */
function maskCall(call: object, mask: Mask): object {
  const kept = Object.entries(call).filter(([name]) => KEPT_OF_CALLS.has(name));
  return { ...maskFields(call, mask), ...Object.fromEntries(kept) };
}

function maskEnd({ completion }: FinishCommand, mask: Mask): FinishCommand['completion'] {
  const { done, done_reason, ...rest } = completion;
  return { done, done_reason, ...maskFields(rest, mask) };
}

function maskRun(run: RunRequest, mask: Mask): RunRequest {
  const { text, context, attachments } = run;
  return { ...run, text: mask(text), context: mask(context), attachments: mask(attachments) };
}
