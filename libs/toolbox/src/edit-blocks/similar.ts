import { similarity } from './parse';

const THRESHOLD = 0.6;
const CONTEXT_LINES = 5;
/** Comparing lines letter by letter is kept for sizes where it takes milliseconds. */
const MAX_FUZZY_WORK = 20_000;

/** The lines of the content most like SEARCH, for the hint after a failed match; undefined below 0.6. */
export function similarLines(search: string, content: string): string | undefined {
  const wanted = splitLines(search);
  const lines = splitLines(content);
  if (wanted.length === 0 || lines.length < wanted.length) return undefined;
  const best = bestWindow(wanted, lines);
  if (best.score < THRESHOLD) return undefined;
  const end = best.at + wanted.length;
  const isFramed = lines[best.at] === wanted[0] && lines[end - 1] === wanted.at(-1);
  const context = isFramed ? 0 : CONTEXT_LINES;
  return lines.slice(Math.max(0, best.at - context), end + context).join('\n');
}

function splitLines(text: string): string[] {
  const lines = text.split('\n');
  if (lines.at(-1) === '') lines.pop();
  return lines;
}

function bestWindow(wanted: string[], lines: string[]): { at: number; score: number } {
  const isFuzzy = wanted.length * lines.length <= MAX_FUZZY_WORK;
  let best = { at: 0, score: 0 };
  const bound = new SharedLineCount(wanted);
  for (let at = 0; at < lines.length; at += 1) {
    bound.enter(lines[at] ?? '');
    const start = at - wanted.length + 1;
    if (start < 0) continue;
    const window = lines.slice(start, at + 1);
    // Shared lines in any order bound those in the same order from above.
    if (bound.shared / wanted.length > best.score)
      best = better(best, start, commonRun(wanted, window) / wanted.length);
    if (isFuzzy) best = better(best, start, meanSimilarity(wanted, window));
    bound.leave(lines[start] ?? '');
  }
  return best;
}

function better(best: { at: number; score: number }, at: number, score: number): { at: number; score: number } {
  return score > best.score ? { at, score } : best;
}

function meanSimilarity(wanted: readonly string[], window: readonly string[]): number {
  const total = wanted.reduce((sum, line, index) => sum + similarity(line.trim(), (window[index] ?? '').trim()), 0);
  return total / wanted.length;
}

/** Length of the longest common subsequence of lines. */
function commonRun(a: readonly string[], b: readonly string[]): number {
  let previous = new Array<number>(b.length + 1).fill(0);
  for (const line of a) {
    const row = [0];
    for (const [index, other] of b.entries()) {
      const diagonal = previous[index] ?? 0;
      row.push(line === other ? diagonal + 1 : Math.max(previous[index + 1] ?? 0, row[index] ?? 0));
    }
    previous = row;
  }
  return previous[b.length] ?? 0;
}

/** How many lines of a sliding window also stand in SEARCH, counted with multiplicity. */
class SharedLineCount {
  shared = 0;
  private readonly room = new Map<string, number>();

  constructor(wanted: readonly string[]) {
    for (const line of wanted) this.room.set(line, (this.room.get(line) ?? 0) + 1);
  }

  enter(line: string): void {
    const room = this.room.get(line);
    if (room === undefined) return;
    if (room > 0) this.shared += 1;
    this.room.set(line, room - 1);
  }

  leave(line: string): void {
    const room = this.room.get(line);
    if (room === undefined) return;
    if (room >= 0) this.shared -= 1;
    this.room.set(line, room + 1);
  }
}
