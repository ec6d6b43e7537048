import { parseArgs } from 'node:util';
import { InvalidArgumentError } from '@margay/errors';
import type { BackupCheck, OperatorStore, Restored } from '@margay/session';
import { BackupFolders, type FindManifest } from './backup-folders';

const USAGE = `Usage: margay.cjs backup --to FOLDER [--keep 14]
       margay.cjs backup --check FOLDER
       margay.cjs restore --from FOLDER [--quiet-seconds 60]
The store is that of MARGAY_MONGODB_URL and MARGAY_MONGODB_DATABASE; a restore makes the next generation beside it.`;

export type BackupCommand = { to: string; keep: number } | { check: string };
export interface RestoreCommand {
  from: string;
  quietMs: number;
}

export interface BackupContext {
  open: () => Promise<Pick<OperatorStore, 'backup' | 'restore' | 'close'>>;
  findManifest: FindManifest;
  checkBackup: (folder: string) => Promise<BackupCheck>;
  write: (line: string) => void;
  now: () => Date;
}

/** @throws InvalidArgumentError `usage` */
export function parseBackup(argv: readonly string[]): BackupCommand {
  const { to, check, keep } = optionsOf(argv, ['to', 'check', 'keep']);
  if (check !== undefined && to === undefined && keep === undefined) return { check };
  if (to === undefined || check !== undefined) throw usage('name one of --to and --check');
  return { to, keep: wholeNumber('--keep', keep ?? '14', 1) };
}

/** @throws InvalidArgumentError `usage` */
export function parseRestore(argv: readonly string[]): RestoreCommand {
  const { from, 'quiet-seconds': quiet } = optionsOf(argv, ['from', 'quiet-seconds']);
  if (from === undefined) throw usage('name the folder of the backup: --from');
  return { from, quietMs: wholeNumber('--quiet-seconds', quiet ?? '60', 10) * 1_000 };
}

function optionsOf(argv: readonly string[], names: readonly string[]): Record<string, string | undefined> {
  try {
    const options = Object.fromEntries(names.map((name) => [name, { type: 'string' as const }]));
    return parseArgs({ args: [...argv], options }).values as Record<string, string | undefined>;
  } catch (error) {
    throw usage((error as Error).message);
  }
}

function wholeNumber(option: string, text: string, least: number): number {
  if (/^\d{1,6}$/.test(text) && Number(text) >= least) return Number(text);
  throw usage(`${option} needs a whole number from ${least} on`);
}

const usage = (problem: string) => new InvalidArgumentError('usage', `${problem}\n${USAGE}`);

/** @returns the exit code: 1 where the backup holds something that is not in order */
export async function runBackup(command: BackupCommand, context: BackupContext): Promise<number> {
  if ('check' in command) {
    const folder = await new BackupFolders(command.check, context.findManifest).newest();
    return tell(folder, await context.checkBackup(folder), context.write);
  }
  const folders = new BackupFolders(command.to, context.findManifest);
  const folder = await folders.next(context.now());
  const store = await context.open();
  try {
    const code = tell(folder, (await store.backup(folder)).check, context.write);
    // Bad ones never push out good ones.
    if (code === 0) for (const old of await folders.prune(command.keep)) context.write(`removed ${old}`);
    return code;
  } finally {
    await store.close();
  }
}

function tell(
  folder: string,
  { sessions, commits, blobs, problems }: BackupCheck,
  write: (line: string) => void,
): 0 | 1 {
  for (const problem of problems) write(problem);
  write(`${folder}: ${sessions} sessions, ${commits} commits, ${blobs} blobs, ${problems.length === 0 ? 'all in order' : 'not in order'}`); // prettier-ignore
  return problems.length === 0 ? 0 : 1;
}

/** @returns the exit code: 1 where a log is not in order */
export async function runRestore({ from, quietMs }: RestoreCommand, context: BackupContext): Promise<number> {
  const folder = await new BackupFolders(from, context.findManifest).newest();
  const store = await context.open();
  try {
    return tellRestored(await store.restore(folder, quietMs), context.write);
  } finally {
    await store.close();
  }
}

function tellRestored(
  { database, sessions, parked, unreadable, faults }: Restored,
  write: (line: string) => void,
): 0 | 1 {
  for (const { sessionId, problem } of unreadable) write(`session ${sessionId} can't be read: ${problem}`);
  for (const { sessionId, fault } of faults)
    write(`session ${sessionId}: commit ${fault?.c} is bad: ${fault?.problem}`);
  write(`${sessions} sessions restored into ${database}; ${parked} runs wait for review`);
  write(`set MARGAY_MONGODB_DATABASE=${database} for every service, and start the platform`);
  return unreadable.length + faults.length > 0 ? 1 : 0;
}
