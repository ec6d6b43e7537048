import { ToolFailure } from '../outcome';
import { readWhole } from './open-file';

/** An edit holds several copies of a text, and its diff. */
const MAX_EDITED_BYTES = 16 * 1024 * 1024;

const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** A whole text file; null when it does not exist. Files that are not UTF-8 text are refused rather than damaged. */
export async function readText(absolute: string, shown: string): Promise<string | null> {
  let bytes: Buffer;
  try {
    bytes = await readWhole(absolute, shown, MAX_EDITED_BYTES);
  } catch (error) {
    if (error instanceof ToolFailure) throw error;
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
    throw new ToolFailure(`${shown}: unable to read`, { cause: error });
  }
  try {
    return decoder.decode(bytes);
  } catch (error) {
    throw new ToolFailure(`${shown}: unable to read`, { cause: error });
  }
}

export type LineEnd = '\n' | '\r\n';

/** The line end that most lines of a text use. */
export function dominantLineEnd(text: string): LineEnd {
  const crlf = countOf(text, '\r\n');
  return crlf * 2 > countOf(text, '\n') ? '\r\n' : '\n';
}

export function withLineEnd(text: string, end: LineEnd): string {
  const plain = text.replaceAll('\r\n', '\n');
  return end === '\n' ? plain : plain.replaceAll('\n', '\r\n');
}

/** Occurrences without overlap. */
export function countOf(text: string, part: string): number {
  let count = 0;
  for (let at = text.indexOf(part); at !== -1; at = text.indexOf(part, at + part.length)) count += 1;
  return count;
}

/** Lines with their ends, as `text.split` would if it kept them; no empty last line. */
export function linesOf(text: string): string[] {
  return text.match(/[^\n]*\n|[^\n]+$/g) ?? [];
}

/**
 * Gives an edited copy (`\n` only) the line ends of the original: lines before and after the change keep theirs,
 * changed ones get the end that most lines have.
 */
export function restoreLineEnds(original: string, edited: string): string {
  if (!original.includes('\r\n')) return edited;
  const before = linesOf(original);
  const after = linesOf(edited);
  const isSame = (a: string | undefined, b: string | undefined): boolean =>
    a !== undefined && b !== undefined && a.replace(/\r\n$/, '\n') === b;
  let head = 0;
  while (isSame(before[head], after[head])) head += 1;
  let tail = 0;
  const most = Math.min(before.length, after.length) - head;
  while (tail < most && isSame(before.at(-1 - tail), after.at(-1 - tail))) tail += 1;
  const middle = after.slice(head, after.length - tail).join('');
  const end = dominantLineEnd(original);
  return [...before.slice(0, head), withLineEnd(middle, end), ...before.slice(before.length - tail)].join('');
}
