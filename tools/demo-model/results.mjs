// Reads what a tool returned: the JSON results by `kind`, failures, and plain text.

const UNCHANGED = 'File unchanged since last read';

/** `{ kind: 'file' | 'dir' | 'shell' | 'diff' | 'error' | 'unchanged' | 'text', text, … }`; never throws. */
export function interpret(content) {
  const value = parse(content);
  if (typeof value?.kind === 'string') return { ...value, text: typeof value.text === 'string' ? value.text : content };
  if (value?.error) return { kind: 'error', text: String(value.error.message ?? value.error) };
  const failure = /^\s*ERROR:?\s*/.exec(content);
  if (failure) return { kind: 'error', text: content.slice(failure[0].length) };
  return { kind: content.startsWith(UNCHANGED) ? 'unchanged' : 'text', text: content };
}

function parse(content) {
  if (!content.startsWith('{')) return undefined;
  try {
    return JSON.parse(content);
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

/** The lines of a `file` result as `{ number, text }`, without the numbers in front and the note that it was cut. */
export function fileLines(result) {
  return result.text.split('\n').flatMap((line) => {
    const match = /^\s*(\d+)\t([^\r]*)/.exec(line);
    return match ? [{ number: Number(match[1]), text: match[2] }] : [];
  });
}

/** Where a cut `file` result goes on, or undefined if it is whole. */
export function nextOffset(result) {
  const last = fileLines(result).at(-1);
  return last && last.number < (result.total_lines ?? 0) ? last.number : undefined;
}
