import path from 'node:path';
import { linesOf } from '../files/text';
import type { EditBlock } from './parse';

/** The content after one block; undefined when SEARCH does not match. Texts have `\n` line ends. */
export function applyEditBlock(content: string, block: EditBlock): string | undefined {
  const search = withoutFence(block.search, block.file);
  const replace = withoutFence(block.replace, block.file);
  if (search.trim() === '') return ended(content) + replace;
  return replaceLines(ended(content), ended(search), replace === '' ? '' : ended(replace));
}

function replaceLines(whole: string, search: string, replace: string): string | undefined {
  const wholeLines = linesOf(whole);
  const searchLines = linesOf(search);
  const replaceLines_ = linesOf(replace);
  const found = replaceRun(wholeLines, searchLines, replaceLines_);
  if (found !== undefined) return found;
  if (searchLines.length > 2 && searchLines[0]?.trim() === '') {
    const retried = replaceRun(wholeLines, searchLines.slice(1), replaceLines_);
    if (retried !== undefined) return retried;
  }
  return replaceAroundEllipses(whole, search, replace);
}

function replaceRun(whole: string[], search: string[], replace: string[]): string | undefined {
  return replaceExact(whole, search, replace) ?? replaceIndented(whole, search, replace);
}

function replaceExact(whole: string[], search: string[], replace: string[]): string | undefined {
  for (let at = 0; at + search.length <= whole.length; at += 1) {
    if (search.every((line, index) => whole[at + index] === line)) return spliced(whole, at, search.length, replace);
  }
  return undefined;
}

/** Models often drop or add the indentation that a whole block has in common. */
function replaceIndented(whole: string[], search: string[], replace: string[]): string | undefined {
  const indents = [...search, ...replace].filter((line) => line.trim() !== '').map(indentOf);
  const common = indents.length > 0 ? Math.min(...indents) : 0;
  const outdent = (line: string): string => (line.trim() === '' ? line : line.slice(common));
  const wanted = search.map(outdent);
  for (let at = 0; at + wanted.length <= whole.length; at += 1) {
    const prefix = missingPrefix(whole.slice(at, at + wanted.length), wanted);
    if (prefix === undefined) continue;
    const indented = replace.map(outdent).map((line) => (line.trim() === '' ? line : prefix + line));
    return spliced(whole, at, wanted.length, indented);
  }
  return undefined;
}

/** The one string that every non-blank line of the window has before the searched line. */
function missingPrefix(window: readonly string[], wanted: readonly string[]): string | undefined {
  if (!window.every((line, index) => line.trimStart() === wanted[index]?.trimStart())) return undefined;
  const prefixes = new Set<string>();
  for (const [index, line] of window.entries()) {
    const missing = line.length - (wanted[index]?.length ?? 0);
    if (line.trim() === '') continue;
    if (missing < 0) return undefined;
    prefixes.add(line.slice(0, missing));
  }
  const [prefix] = prefixes;
  return prefixes.size === 1 ? prefix : undefined;
}

const DOTS = /(^[^\S\n]*\.\.\.\n)/m;

function replaceAroundEllipses(whole: string, search: string, replace: string): string | undefined {
  const searchPieces = search.split(new RegExp(DOTS, 'gm'));
  const replacePieces = replace.split(new RegExp(DOTS, 'gm'));
  if (searchPieces.length === 1 || searchPieces.length !== replacePieces.length) return undefined;
  let result = whole;
  for (const [index, piece] of searchPieces.entries()) {
    const other = replacePieces[index] ?? '';
    const isDots = index % 2 === 1;
    if (isDots && piece !== other) return undefined;
    if (isDots || (piece === '' && other === '')) continue;
    if (piece === '') {
      result = ended(result) + other;
      continue;
    }
    const at = result.indexOf(piece);
    if (at === -1 || result.indexOf(piece, at + 1) !== -1) return undefined;
    result = result.slice(0, at) + other + result.slice(at + piece.length);
  }
  return result;
}

function spliced(whole: string[], at: number, count: number, replace: readonly string[]): string {
  return [...whole.slice(0, at), ...replace, ...whole.slice(at + count)].join('');
}

function indentOf(line: string): number {
  return line.length - line.trimStart().length;
}

function ended(text: string): string {
  return text === '' || text.endsWith('\n') ? text : `${text}\n`;
}

/** Some models repeat the file name or a fence pair inside SEARCH or REPLACE. */
function withoutFence(text: string, file: string): string {
  const lines = linesOf(text);
  const hasName = lines.length > 1 && (lines[0]?.trim().endsWith(path.basename(file)) ?? false);
  const body = hasName && lines[1]?.startsWith('```') ? lines.slice(1) : lines;
  const isFenced = body.length >= 2 && body[0]?.startsWith('```') && body.at(-1)?.trim() === '```';
  return ended((isFenced ? body.slice(1, -1) : lines).join(''));
}
