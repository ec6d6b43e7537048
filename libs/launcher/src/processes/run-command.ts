import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { UnavailableError } from '@margay/errors';
import { endWithUs } from './children';

export interface CommandOptions {
  env?: Readonly<NodeJS.ProcessEnv>;
  cwd?: string;
  /** Default 60 s. */
  timeoutMs?: number;
  /** Each line of both streams, as it comes. */
  onLine?: (line: string) => void;
}

/** Runs a command to its end and returns its standard output; a failure carries the last lines it wrote. */
export async function runCommand(
  command: string,
  args: readonly string[],
  options: CommandOptions = {},
): Promise<string> {
  const { timeoutMs = 60_000, onLine, ...spawnOptions } = options;
  const child = spawn(command, [...args], {
    ...spawnOptions,
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: timeoutMs,
    killSignal: 'SIGKILL',
  });
  endWithUs(child, false);
  const output: string[] = [];
  const recent: string[] = [];
  const keep = (line: string) => {
    recent.push(line);
    if (recent.length > 8) recent.shift();
    onLine?.(line);
  };
  createInterface({ input: child.stdout }).on('line', (line) => {
    output.push(line);
    keep(line);
  });
  createInterface({ input: child.stderr }).on('line', keep);
  const ending = await new Promise<string>((resolve) => {
    child.once('error', (error) => resolve(error.message));
    child.once('close', (code, signal) =>
      resolve(signal ? `ended by ${signal}` : code === 0 ? '' : `exit code ${code}`),
    );
  });
  if (ending !== '') throw new UnavailableError('command_failed', failure(command, args, ending, recent));
  return output.join('\n');
}

function failure(command: string, args: readonly string[], ending: string, recent: readonly string[]): string {
  const said = recent.length > 0 ? `; it said: ${recent.slice(-3).join(' | ')}` : '';
  return `${command} ${args.slice(0, 3).join(' ')} failed (${ending})${said}`;
}
