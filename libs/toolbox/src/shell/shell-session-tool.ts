import { z } from 'zod';
import { parseArguments } from '../arguments';
import { ToolFailure, type CallContext, type ToolOutcome } from '../outcome';
import type { ShellHost } from './shell-host';
import type { ShellReading, ShellSessionView } from './shell-sessions';

const Arguments = z
  .strictObject({
    operation: z.enum(['read', 'write', 'kill', 'list']),
    shell_id: z.string().optional(),
    input: z.string().default(''),
    newline: z.boolean().default(true),
    cursor: z.number().int().min(0).optional(),
    filter: z.string().max(1_000).optional(),
    wait_ms: z.number().int().min(0).max(30_000).default(0),
    root: z.string().optional(),
  })
  .transform(({ shell_id, wait_ms, ...rest }) => ({ ...rest, shellId: shell_id, waitMs: wait_ms }));
type Arguments = z.infer<typeof Arguments>;

/** `shell_session_tool` (ext §1.8): reads, feeds, ends and lists background shells. */
export async function shellSessionTool(args: unknown, call: CallContext, shell: ShellHost): Promise<ToolOutcome> {
  const startedAt = performance.now();
  const parsed = parseArguments('shell_session_tool', Arguments, args);
  const result = { kind: 'shell_session', operation: parsed.operation, ...(await perform(parsed, call, shell)) };
  return { status: 'ok', result, changedFiles: [], durationMs: Math.round(performance.now() - startedAt) };
}

async function perform(parsed: Arguments, call: CallContext, shell: ShellHost): Promise<Record<string, unknown>> {
  const { sessions } = shell;
  if (parsed.operation === 'list') return { sessions: sessions.list().map(presentView) };
  const { shellId, cursor, filter, waitMs } = parsed;
  if (shellId === undefined) throw new ToolFailure(`shell_id is required for operation "${parsed.operation}".`);
  if (parsed.operation === 'kill') return presentView(await sessions.kill(shellId));
  if (parsed.operation === 'write') await sessions.write(shellId, parsed.input + (parsed.newline ? '\n' : ''));
  const options = {
    waitMs,
    signal: call.signal,
    ...(cursor === undefined ? {} : { cursor }),
    ...(filter === undefined ? {} : { filter }),
  };
  return presentReading(await sessions.read(shellId, options));
}

function presentView(view: ShellSessionView): Record<string, unknown> {
  return { shell_id: view.shellId, command: view.command, status: view.status, exit_code: view.exitCode };
}

function presentReading(reading: ShellReading): Record<string, unknown> {
  return {
    ...presentView(reading),
    output: reading.output,
    cursor: reading.cursor,
    ...(reading.missedCharacters > 0 ? { missed_characters: reading.missedCharacters } : {}),
  };
}
