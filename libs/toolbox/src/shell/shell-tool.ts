import { stat } from 'node:fs/promises';
import { z } from 'zod';
import { parseArguments } from '../arguments';
import type { PathPolicy } from '../files/paths';
import { ToolFailure, type CallContext, type ToolOutcome } from '../outcome';
import type { ShellHost } from './shell-host';

const DEFAULT_TIMEOUT_S = 115;
const MAX_TIMEOUT_S = 600;

const Arguments = z.strictObject({
  command: z.string().min(1),
  cwd: z.string().nullish(),
  root: z.string().optional(),
  timeout: z.number().min(1).default(DEFAULT_TIMEOUT_S),
  run_in_background: z.boolean().default(false),
  tty: z.boolean().default(false),
});

/** `aider_shell_tool` (ext §1.7). */
export async function shellTool(
  args: unknown,
  paths: PathPolicy,
  call: CallContext,
  shell: ShellHost,
): Promise<ToolOutcome> {
  const startedAt = performance.now();
  const parsed = parseArguments('aider_shell_tool', Arguments, args);
  const cwd = await workingFolder(parsed.cwd ?? '.', parsed.root, paths);
  const { command, tty: hasTerminal } = parsed;
  if (parsed.run_in_background) {
    const shellId = await shell.sessions.start({ callId: call.callId, command, cwd, hasTerminal });
    const result = { kind: 'shell', command, cwd, shell_id: shellId, stdout: '', stderr: '' };
    return { status: 'ok', result, changedFiles: [], durationMs: Math.round(performance.now() - startedAt) };
  }
  const timeoutMs = Math.min(parsed.timeout, MAX_TIMEOUT_S) * 1_000;
  const { callId, signal, output } = call;
  const end = await shell.run({ command, cwd, callId, hasTerminal, timeoutMs, signal, output });
  const preview = output.preview();
  const durationMs = Math.round(performance.now() - startedAt);
  const result = {
    kind: 'shell',
    command,
    cwd,
    exit_code: end.exitCode,
    stdout: preview.text,
    stderr: '',
    duration_ms: durationMs,
    ...(end.isTimedOut ? { timed_out: true } : {}),
    ...(preview.isComplete ? {} : { stdout_bytes: preview.totalBytes }),
    ...(preview.file === undefined ? {} : { stdout_file: preview.file }),
  };
  return {
    status: 'ok',
    result,
    exitCode: end.exitCode,
    changedFiles: [],
    durationMs,
    ...(end.isTimedOut ? { limitHit: 'wall_time' } : {}),
  };
}

async function workingFolder(given: string, root: string | undefined, paths: PathPolicy): Promise<string> {
  const folder = paths.resolve(given, root);
  const facts = await stat(folder).catch(() => undefined);
  if (!facts?.isDirectory()) throw new ToolFailure(`${given} is not a folder; name an existing one as cwd.`);
  return folder;
}
