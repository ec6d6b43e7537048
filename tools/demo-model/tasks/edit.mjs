import { findAssignments, uniqueLines, writtenLike } from '../assignment.mjs';
import { code, count, fence, list, oneLine } from '../text.mjs';
import { lacking } from '../toolbox.mjs';
import { readUntil } from './read.mjs';

/** Reads a file, finds where it sets a key, and changes the value there. */
export function* change({ path, key, value }, tools) {
  if (!tools.has('read'))
    return `${lacking('read')}, so I cannot find ${code(key)} in ${code(path)} and changed nothing.`;
  const isThere = (lines) => findAssignments(lines, key).length > 0;
  const { lines, failure } = yield* readUntil(path, tools, isThere, `Reading ${code(path)} to find ${code(key)}.`);
  if (failure) return `${failure}\n\nI changed nothing.`;
  const assignments = findAssignments(lines, key);
  const [first] = assignments;
  if (!first) return `${notFound(path, key, lines)} I changed nothing.`;
  const newValue = writtenLike(first.value, value);
  const where = `${code(key)} on line ${first.number} of ${code(path)}`;
  if (newValue === first.value) return `${where} is ${code(first.value)} already, so I changed nothing.`;
  const newLine = first.head + newValue + first.tail;
  const others = assignments.slice(1).map((other) => other.number);
  const note =
    others.length > 0 ? `\n\nIt is also set on line ${list(others.map(String))}; I left that as it was.` : '';
  const done = yield* replaceLine(path, lines, first.number, newLine, tools, {
    say: `${where} is ${code(first.value)}; changing it to ${code(newValue)}.`,
    done: `Changed ${where} from ${code(first.value)} to ${code(newValue)}.`,
  });
  return done + note;
}

/** Replaces a piece of text in a file, where it first occurs within a line. */
export function* replace({ path, before, after }, tools) {
  if (!tools.has('read')) return `${lacking('read')}, so I cannot find the text in ${code(path)} and changed nothing.`;
  const holds = (line) => line.text.includes(before);
  const { lines, failure } = yield* readUntil(
    path,
    tools,
    (read) => read.some(holds),
    `Reading ${code(path)} to find ${code(before)}.`,
  );
  if (failure) return `${failure}\n\nI changed nothing.`;
  const line = lines.find(holds);
  if (!line)
    return `None of the ${count(lines.length, 'line')} I read of ${code(path)} holds ${code(before)}. I changed nothing.`;
  const newLine = line.text.replace(before, () => after);
  return yield* replaceLine(path, lines, line.number, newLine, tools, {
    say: `Line ${line.number} of ${code(path)} holds it; replacing it.`,
    done: `Replaced ${code(before)} by ${code(after)} on line ${line.number} of ${code(path)}.`,
  });
}

function* replaceLine(path, lines, number, newLine, tools, words) {
  const index = lines.findIndex((line) => line.number === number);
  const old = lines[index].text;
  if (!tools.has('edit'))
    return `${lacking('edit')}, so I changed nothing. The change would be:\n\n${fence(`-${old}\n+${newLine}`, 'diff')}`;
  const { from, to } = uniqueLines(lines, index);
  const block = lines.slice(from, to).map((line) => line.text);
  const changed = block.with(index - from, newLine);
  const [result] = yield { say: words.say, calls: [tools.edit(path, block.join('\n'), changed.join('\n'))] };
  return reportEdit(path, result, words.done);
}

/** Creates a file, or replaces the whole text of one that the listing shows. */
export function* write({ path, content }, tools) {
  if (!tools.has('edit')) return `${lacking('edit')}, so I did not write ${code(path)}.`;
  const old = yield* currentText(path, tools);
  if (old.failure) return `${old.failure}\n\nIt exists, so I did not write over it.`;
  if (old.text === content) return `${code(path)} holds exactly that already, so I changed nothing.`;
  const verb = old.text === undefined ? 'Created' : 'Rewrote';
  const [result] = yield { say: `Writing ${code(path)}.`, calls: [tools.edit(path, old.text ?? '', content)] };
  return reportEdit(
    path,
    result,
    `${verb} ${code(path)} with ${count(content.replace(/\n$/, '').split('\n').length, 'line')}.`,
  );
}

function* currentText(path, tools) {
  if (!tools.has('list') || !tools.has('read')) return {};
  const [listing] = yield { say: `Looking whether ${code(path)} exists.`, calls: [tools.list('.')] };
  if (listing.kind !== 'dir' || !listing.entries?.includes(path.replace(/^\.\//, ''))) return {};
  const { lines, isWhole, failure } = yield* readUntil(path, tools, () => false, `${code(path)} exists; reading it.`);
  if (failure) return { failure };
  if (!isWhole) return { failure: `${code(path)} is longer than what I could read.` };
  return { text: lines.length === 0 ? undefined : `${lines.map((line) => line.text).join('\n')}\n` };
}

function reportEdit(path, result, done) {
  if (result.kind === 'diff') return `${done}\n\n${fence(result.text, 'diff')}`;
  if (result.kind === 'error') return `Editing ${code(path)} failed. The tool said:\n\n${fence(result.text)}`;
  return `I called the edit tool on ${code(path)}. It returned no diff, but: “${oneLine(result.text, 300)}”`;
}

function notFound(path, key, lines) {
  const mentions = lines.filter((line) => line.text.includes(key));
  const read = `I read ${count(lines.length, 'line')} of ${code(path)} and found no assignment of ${code(key)}.`;
  if (mentions.length === 0) return `${read} The name does not occur in them.`;
  return `${read} The name occurs on line ${list(mentions.slice(0, 5).map((line) => String(line.number)))}: “${oneLine(mentions[0].text)}”.`;
}
