import type { EventOf } from '@margay/client';

type Payload = EventOf<'tool_result'>['payload'];
type Fields = Record<string, unknown>;

/** What a tool gave back, by the `kind` of its JSON text (rest §4.5); anything else is text. */
export type ToolOutcome =
  | { kind: 'file'; path: string; totalLines: number }
  | { kind: 'shell'; command: string; exitCode: number | undefined; output: string }
  | { kind: 'dir'; path: string; entries: number }
  | { kind: 'diff'; title: string; diff: string }
  | { kind: 'text'; text: string };

const text = (value: unknown): string => (typeof value === 'string' ? value : '');
const number = (value: unknown): number | undefined => (typeof value === 'number' ? value : undefined);

export function outcomeOf(payload: Payload): ToolOutcome {
  const fields = fieldsOf(payload.result);
  switch (fields?.kind) {
    case 'file':
      return { kind: 'file', path: text(fields.path), totalLines: number(fields.total_lines) ?? 0 };
    case 'shell':
      return {
        kind: 'shell',
        command: text(fields.command),
        exitCode: number(fields.exit_code),
        output: [text(fields.stdout), text(fields.stderr)].filter(Boolean).join('\n'),
      };
    case 'dir':
      return {
        kind: 'dir',
        path: text(fields.path),
        entries: Array.isArray(fields.entries) ? fields.entries.length : 0,
      };
    case 'diff':
      return { kind: 'diff', title: text(fields.title), diff: text(fields.text) };
    default:
      return { kind: 'text', text: text(fields?.text) || text(payload.result) };
  }
}

function fieldsOf(result: string | null): Fields | undefined {
  if (!result?.startsWith('{')) return undefined;
  try {
    return JSON.parse(result) as Fields;
  } catch {
    return undefined; // text that only begins like JSON
  }
}

const SUBJECTS = ['path', 'file_path', 'command', 'cmd', 'pattern', 'query', 'url', 'task', 'name', 'root'];

/** The argument that tells best what a call is about. */
export function subjectOf(input: unknown): string {
  if (typeof input === 'string') return input;
  const fields = (typeof input === 'object' && input !== null ? input : {}) as Fields;
  const known = SUBJECTS.map((name) => fields[name]).find((value) => typeof value === 'string' && value);
  return text(known ?? Object.values(fields).find((value) => typeof value === 'string'));
}
