import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { launcherConfig } from '../config';
import { findProgram } from '../provision/find-program';

const OPTIONS = ['--pdeathsig', 'TERM', '--'];
let setpriv: Promise<string | undefined> | undefined;

/**
 * Lets a command end when this process dies, even by SIGKILL. Only Linux with util-linux can do it; elsewhere the
 * pid ledger ends what was left at the next start. The process id stays that of the command itself.
 */
export async function endingWithParent(command: string, args: readonly string[]): Promise<[string, string[]]> {
  setpriv ??= findSetpriv();
  const program = await setpriv;
  return program === undefined ? [command, [...args]] : [program, [...OPTIONS, command, ...args]];
}

async function findSetpriv(): Promise<string | undefined> {
  const program = process.platform === 'linux' ? await findProgram('setpriv', launcherConfig().path) : undefined;
  if (program === undefined) return undefined;
  return promisify(execFile)(program, [...OPTIONS, 'true']).then(
    () => program,
    () => undefined,
  );
}
