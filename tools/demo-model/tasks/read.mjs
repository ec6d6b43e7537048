import { describeFile, languageOf } from '../describe.mjs';
import { fileLines, nextOffset } from '../results.mjs';
import { code, count, fence, list, oneLine } from '../text.mjs';
import { lacking } from '../toolbox.mjs';

const EXCERPT_LINES = 12;

/** Reads files, all in one step, and says what is in them. */
export function* read({ paths }, tools) {
  if (!tools.has('read')) return `${lacking('read')}, so I did not read ${list(paths.map(code))}.`;
  const results = yield { say: `Reading ${list(paths.map(code))}.`, calls: paths.map((path) => tools.read(path)) };
  return results.map((result, index) => report(paths[index], result)).join('\n\n');
}

function report(path, result) {
  if (result.kind !== 'file') return notRead(path, result);
  const lines = fileLines(result);
  const excerpt = lines.slice(0, EXCERPT_LINES).map((line) => line.text);
  const left = (result.total_lines ?? lines.length) - excerpt.length;
  return [
    `**${path}** has ${count(result.total_lines ?? lines.length, 'line')}. ${describeFile(path, lines)}`,
    lines.length > 0 &&
      fence(
        excerpt.join('\n'),
        languageOf(path)
          ?.toLowerCase()
          .replace(/[^a-z]/g, '') ?? '',
      ),
    left > 0 && `… and ${count(left, 'more line')}.`,
  ]
    .filter(Boolean)
    .join('\n\n');
}

/** The sentence on a read that did not give a file. */
export function notRead(path, result) {
  if (result.kind === 'error') return `I could not read ${code(path)}. The tool said: “${oneLine(result.text, 300)}”`;
  return `Reading ${code(path)} did not return a file, but: “${oneLine(result.text, 300)}”`;
}

/** Reads slice after slice until `isEnough(lines)` or the file ends; `{ lines, isWhole }` or `{ failure }`. */
export function* readUntil(path, tools, isEnough, say) {
  let result;
  [result] = yield { say, calls: [tools.read(path)] };
  const lines = [];
  for (let slice = 0; slice < 10; slice += 1) {
    if (result.kind !== 'file') return { failure: notRead(path, result) };
    lines.push(...fileLines(result));
    const offset = nextOffset(result);
    if (offset === undefined || isEnough(lines)) return { lines, isWhole: offset === undefined };
    [result] = yield { say: `Reading on in ${code(path)}.`, calls: [tools.read(path, offset)] };
  }
  return { lines, isWhole: false };
}
