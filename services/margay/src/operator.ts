import { InvalidArgumentError } from '@margay/errors';
import type { Logger } from '@margay/platform';
import type { OperatorStore, Rebuilt, Verification } from '@margay/session';

const COMMANDS = ['verify', 'rebuild'] as const;
const USAGE = `Usage: margay.cjs verify [--all | --session ID] [--tenant ID] [--json]
       margay.cjs rebuild [--all | --session ID] [--json]
The store is that of MARGAY_MONGODB_URL and MARGAY_MONGODB_DATABASE.`;

export interface OperatorCommand {
  name: (typeof COMMANDS)[number];
  /** Absent: all sessions. */
  sessionId?: string;
  tenantId?: string;
  asJson: boolean;
}

export interface OperatorContext {
  open: () => Promise<Pick<OperatorStore, 'verify' | 'verifyAll' | 'rebuild' | 'rebuildAll' | 'close'>>;
  write: (line: string) => void;
  logger: Logger;
}

/** Whether the arguments ask for a command of an operator instead of services. */
export function isOperatorCommand([name]: readonly string[]): boolean {
  return (COMMANDS as readonly (string | undefined)[]).includes(name);
}

/** @throws InvalidArgumentError `usage` */
export function parseOperatorCommand([name, ...rest]: readonly string[]): OperatorCommand {
  const command: OperatorCommand = { name: name === 'rebuild' ? 'rebuild' : 'verify', asJson: false };
  for (const words = [...rest]; words.length > 0;) {
    const word = words.shift();
    if (word === '--all') continue;
    if (word === '--json') command.asJson = true;
    else if (word === '--session') command.sessionId = valueOf(word, words);
    else if (word === '--tenant' && command.name === 'verify') command.tenantId = valueOf(word, words);
    else throw new InvalidArgumentError('usage', `'${word}' is not understood.\n${USAGE}`);
  }
  if (rest.includes('--all') && command.sessionId !== undefined)
    throw new InvalidArgumentError('usage', `--all and --session exclude each other.\n${USAGE}`);
  return command;
}

function valueOf(option: string, words: string[]): string {
  const value = words.shift();
  if (value === undefined || value.startsWith('--'))
    throw new InvalidArgumentError('usage', `${option} needs a value.\n${USAGE}`);
  return value;
}

/** @returns the exit code: 1 where something is wrong */
export async function runOperatorCommand(command: OperatorCommand, context: OperatorContext): Promise<number> {
  const store = await context.open();
  try {
    return command.name === 'verify'
      ? await verify(command, store, context.write)
      : await rebuild(command, store, context);
  } finally {
    await store.close();
  }
}

type Store = Awaited<ReturnType<OperatorContext['open']>>;

async function verify({ sessionId, tenantId, asJson }: OperatorCommand, store: Store, write: (line: string) => void) {
  let sessions = 0;
  let bad = 0;
  const verifications = sessionId === undefined ? store.verifyAll(tenantId) : [await store.verify(sessionId)];
  for await (const verification of verifications) {
    sessions += 1;
    if (verification.fault) bad += 1;
    if (asJson) write(JSON.stringify(wireOf(verification)));
    else if (verification.fault || sessionId !== undefined) write(sentence(verification));
  }
  if (!asJson && sessionId === undefined) write(`${sessions} sessions checked, ${bad} of them not in order`);
  return bad > 0 ? 1 : 0;
}

function wireOf({ sessionId, commits, headHash, fault }: Verification) {
  const found = fault ? { first_bad: fault.c, problem: fault.problem } : {};
  return { session_id: sessionId, ok: !fault, commits, head_hash: headHash, ...found };
}

function sentence({ sessionId, commits, headHash, fault }: Verification): string {
  if (!fault) return `session ${sessionId}: ${commits} commits in order, hash ${headHash}`;
  return `session ${sessionId}: commit ${fault.c} is bad: ${fault.problem}`;
}

async function rebuild({ sessionId, asJson }: OperatorCommand, store: Store, { write, logger }: OperatorContext) {
  const onProgress = ({ sessions, rows }: Rebuilt): void =>
    logger.info({ sessions, rows }, 'projections are being rebuilt');
  const rebuilt = sessionId === undefined ? await store.rebuildAll(onProgress) : await store.rebuild(sessionId);
  const { sessions, rows, unreadable } = rebuilt;
  if (asJson) write(JSON.stringify({ sessions, rows, unreadable: unreadable.map(wireOfUnreadable) }));
  else {
    for (const { sessionId: id, problem } of unreadable) write(`session ${id} can't be read: ${problem}`);
    write(`${sessions} sessions compared with their logs, ${rows} rows put right`);
  }
  return unreadable.length > 0 ? 1 : 0;
}

function wireOfUnreadable({ sessionId, problem }: Rebuilt['unreadable'][number]) {
  return { session_id: sessionId, problem };
}
