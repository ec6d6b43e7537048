import { access, constants, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { runCommand } from '../processes/run-command';
import { parseVersion } from './versions';

export async function isProgram(file: string): Promise<boolean> {
  try {
    await access(file, constants.X_OK);
    return (await stat(file)).isFile();
  } catch {
    // Not there or not executable: both mean that it is no program for us.
    return false;
  }
}

/** First program of that name in the given folders. */
export async function findProgram(name: string, folders: readonly string[]): Promise<string | undefined> {
  const file = process.platform === 'win32' ? `${name}.exe` : name;
  for (const folder of folders) {
    if (await isProgram(join(folder, file))) return join(folder, file);
  }
  return undefined;
}

/** Asks a program for its version; undefined when it does not run or names none. */
export async function findVersion(command: readonly string[]): Promise<string | undefined> {
  const [program = '', ...args] = command;
  try {
    return parseVersion(await runCommand(program, [...args, '--version'], { timeoutMs: 20_000 }));
  } catch {
    // A broken binary (other architecture, missing library) is not a candidate; the next source is tried.
    return undefined;
  }
}
