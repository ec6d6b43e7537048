const SUMMARY_MAX_CHARS = 200;

/** One short line on what a call brought, for lists and cards. */
export function summarise(result: unknown, text: string): string {
  const line = typeof result === 'object' && result !== null ? ofKind(result as Record<string, unknown>) : undefined;
  return clip(line ?? firstLine(text));
}

function ofKind(result: Record<string, unknown>): string | undefined {
  switch (result['kind']) {
    case 'shell':
      return `exit code ${String(result['exit_code'])}: ${String(result['command'])}`;
    case 'file':
      return `${String(result['path'])} (${String(result['total_lines'])} lines)`;
    case 'dir':
      return `${String(result['path'])} (${Array.isArray(result['entries']) ? result['entries'].length : 0} entries)`;
    case 'diff':
      return String(result['title']);
    default:
      return typeof result['summary'] === 'string' ? result['summary'] : undefined;
  }
}

function firstLine(text: string): string {
  return text.trimStart().split('\n', 1)[0] ?? '';
}

function clip(text: string): string {
  const line = text.replace(/\s+/g, ' ').trim();
  return line.length <= SUMMARY_MAX_CHARS ? line : `${line.slice(0, SUMMARY_MAX_CHARS - 1)}…`;
}
