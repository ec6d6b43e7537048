import { spawn } from 'node:child_process';

export class CommandFailure extends Error {
  constructor(
    command: string,
    readonly exitCode: number | null,
    readonly stdout: string,
    readonly stderr: string,
  ) {
    super(`${command} ended with ${exitCode}: ${(stderr || stdout).trim().slice(0, 4_000)}`);
  }
}

export interface CommandOptions {
  input?: string;
  env?: NodeJS.ProcessEnv;
  /** Ends the command, which then has failed; default 120,000. */
  timeoutMs?: number;
}

/** What the command printed to standard output; throws CommandFailure unless it ended with 0. */
export async function runCommand(program: string, args: readonly string[], options: CommandOptions = {}) {
  const { input, env = process.env, timeoutMs = 120_000 } = options;
  const child = spawn(program, args, {
    env,
    stdio: ['pipe', 'pipe', 'pipe'],
    timeout: timeoutMs,
    killSignal: 'SIGKILL',
  });
  const stdout: Buffer[] = [];
  const stderr: Buffer[] = [];
  child.stdout.on('data', (chunk: Buffer) => stdout.push(chunk));
  child.stderr.on('data', (chunk: Buffer) => stderr.push(chunk));
  child.stdin.on('error', () => undefined); // a command may end before it has read everything
  child.stdin.end(input);
  const exitCode = await new Promise<number | null>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', resolve);
  });
  const output = Buffer.concat(stdout).toString();
  if (exitCode === 0) return output;
  throw new CommandFailure(
    [program, ...args].join(' ').slice(0, 300),
    exitCode,
    output,
    Buffer.concat(stderr).toString(),
  );
}
