import path from 'node:path';
import { distance } from 'fastest-levenshtein';
import { linesOf } from '../files/text';
import { ToolFailure } from '../outcome';

export interface EditBlock {
  /** As written in the block, or as it stands in the list of files. */
  file: string;
  search: string;
  replace: string;
}

const HEAD = /^<{5,9} SEARCH>?\s*$/;
const DIVIDER = /^={5,9}\s*$/;
const TAIL = /^>{5,9} REPLACE\s*$/;
const SHELL_FENCE = /^```(?:bash|sh|shell|cmd|batch|powershell|ps1|zsh|fish|ksh|csh|tcsh)/;
const FENCE = '```';

/** Every error of the tool ends with this. */
export const FORMAT_REMINDER = [
  'Each edit must look like this, the file name alone on the line above the fence:',
  'path/to/file',
  '```',
  '<<<<<<< SEARCH',
  'exact lines of the file',
  '=======',
  'new lines',
  '>>>>>>> REPLACE',
  '```',
].join('\n');

/** Reads all SEARCH/REPLACE blocks of a text (ext §1.5). */
export function parseEditBlocks(content: string, files: readonly string[] = []): EditBlock[] {
  const lines = linesOf(content.replaceAll('\r\n', '\n'));
  const blocks: EditBlock[] = [];
  let at = 0;
  while (at < lines.length) {
    const line = trimmed(lines, at);
    if (SHELL_FENCE.test(line) && !HEAD.test(trimmed(lines, at + 1)) && !HEAD.test(trimmed(lines, at + 2))) {
      throw new ToolFailure('Shell command blocks are not supported by this tool.');
    }
    if (!HEAD.test(line)) {
      at += 1;
      continue;
    }
    const { block, next } = parseBlock(lines, at, { files, previous: blocks.at(-1)?.file });
    blocks.push(block);
    at = next;
  }
  return blocks;
}

interface BlockContext {
  files: readonly string[];
  previous: string | undefined;
}

function parseBlock(lines: string[], head: number, context: BlockContext): { block: EditBlock; next: number } {
  const isNewFile = DIVIDER.test(trimmed(lines, head + 1));
  const above = lines.slice(Math.max(0, head - 3), head).reverse();
  const file = chooseFile(namesIn(above), isNewFile ? [] : context.files) ?? context.previous;
  if (file === undefined) {
    throw broken(
      lines,
      head,
      'Bad/missing filename. The filename must be alone on the line before the opening fence ```',
    );
  }
  const divider = findLine(lines, head + 1, [DIVIDER]);
  if (divider === -1) throw broken(lines, lines.length, 'Expected `=======`');
  const tail = findLine(lines, divider + 1, [TAIL, DIVIDER]);
  if (tail === -1) throw broken(lines, lines.length, 'Expected `>>>>>>> REPLACE` or `=======`');
  const search = lines.slice(head + 1, divider).join('');
  const replace = lines.slice(divider + 1, tail).join('');
  return { block: { file, search, replace }, next: tail + 1 };
}

function trimmed(lines: readonly string[], at: number): string {
  return lines[at]?.trim() ?? '';
}

function findLine(lines: readonly string[], from: number, patterns: readonly RegExp[]): number {
  for (let at = from; at < lines.length; at += 1) {
    if (patterns.some((pattern) => pattern.test(trimmed(lines, at)))) return at;
  }
  return -1;
}

function broken(lines: readonly string[], at: number, what: string): ToolFailure {
  const soFar = lines.slice(0, at + 1).join('');
  return new ToolFailure(`${soFar}${soFar.endsWith('\n') ? '' : '\n'}^^^ ${what}`);
}

/** Names in the lines above a head, nearest first, continuing upward only past fence lines. */
function namesIn(above: readonly string[]): string[] {
  const names: string[] = [];
  for (const line of above) {
    const name = nameIn(line);
    if (name !== undefined) names.push(name);
    if (!line.startsWith(FENCE)) break;
  }
  return names;
}

function nameIn(line: string): string | undefined {
  const text = line.trim();
  if (text === '' || text === '...') return undefined;
  if (text.startsWith(FENCE)) {
    const rest = text.slice(FENCE.length).trim();
    return /[./]/.test(rest) ? rest : undefined;
  }
  const name = text
    .replace(/:+$/, '')
    .replace(/^#+/, '')
    .trim()
    .replace(/^`+|`+$/g, '')
    .replace(/^\*+|\*+$/g, '');
  return name === '' ? undefined : name;
}

function chooseFile(names: readonly string[], files: readonly string[]): string | undefined {
  const exact = names.find((name) => files.includes(name));
  if (exact !== undefined) return exact;
  for (const name of names) {
    const sameBase = files.find((file) => path.basename(file) === name);
    if (sameBase !== undefined) return sameBase;
  }
  for (const name of names) {
    const close = closest(name, files);
    if (close !== undefined) return close;
  }
  return names.find((name) => name.includes('.')) ?? names[0];
}

function closest(name: string, files: readonly string[]): string | undefined {
  const scored = files.map((file) => ({ file, score: similarity(name, file) })).sort((a, b) => b.score - a.score);
  const best = scored[0];
  return best !== undefined && best.score >= 0.8 ? best.file : undefined;
}

/** 1 = equal, 0 = nothing in common. */
export function similarity(a: string, b: string): number {
  const longest = Math.max(a.length, b.length);
  return longest === 0 ? 1 : 1 - distance(a, b) / longest;
}
