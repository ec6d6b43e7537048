// Finds where a file gives a key its value, in the usual notations: `key = 1`, `"key": 1,`, `key: 1  # why`, `export KEY=1`.

const escape = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
const COMMENT = /^\s*(?:#|\/\/|--|;|\*|\/\*)/;
const CLOSING = { '(': ')', '[': ']', '{': '}' };

/** Every assignment of the key: `{ number, line, head, value, tail }` with `head + value + tail === line`. */
export function findAssignments(lines, key) {
  const pattern = new RegExp(
    `^(.*?(?<![\\w$.-])["']?${escape(key)}["']?\\s*(?::[^=:]*?=(?![=>])|=(?![=>])|:(?![:=]))\\s*)(\\S.*)$`,
  );
  return lines.flatMap(({ number, text }) => {
    const match = COMMENT.test(text) ? null : pattern.exec(text);
    if (!match) return [];
    const length = valueLength(match[2]);
    return [{ number, line: text, head: match[1], value: match[2].slice(0, length), tail: match[2].slice(length) }];
  });
}

/** How far the value reaches: to a separator, a closing bracket or a comment outside quotes and brackets. */
function valueLength(text) {
  const open = [];
  let quote = '';
  let end = text.length;
  for (let index = 0; index < text.length; index += 1) {
    const character = text[index];
    if (quote !== '') {
      if (character === '\\') index += 1;
      else if (character === quote) quote = '';
    } else if (`"'\``.includes(character)) quote = character;
    else if (character in CLOSING) open.push(CLOSING[character]);
    else if (open.length > 0) {
      if (character === open.at(-1)) open.pop();
    } else if (',;)]}'.includes(character) || /^\s+(?:#|\/\/|\/\*)/.test(text.slice(index))) {
      end = index;
      break;
    }
  }
  return text.slice(0, end).trimEnd().length;
}

/** The new value as the file would write it: a bare word takes the quotes of the string it replaces. */
export function writtenLike(oldValue, newValue) {
  const quote = /^(["'`]).*\1$/.exec(oldValue)?.[1];
  const bare = newValue.replace(/^`([\s\S]*)`$/, '$1');
  const isQuoted = /^(["']).*\1$/.test(bare);
  if (quote === undefined) return bare;
  return `${quote}${isQuoted ? bare.slice(1, -1) : bare}${quote}`;
}

/** A run of lines around one of them that occurs only once in the file, as small as possible; at most so many lines each side. */
export function uniqueLines(lines, index, maxContext = 5) {
  const texts = lines.map((line) => line.text);
  const whole = texts.join('\n');
  for (let context = 0; context <= maxContext; context += 1) {
    const from = Math.max(0, index - context);
    const block = texts.slice(from, index + context + 1).join('\n');
    if (whole.indexOf(block) === whole.lastIndexOf(block)) return { from, to: index + context + 1 };
  }
  return { from: index, to: index + 1 };
}
