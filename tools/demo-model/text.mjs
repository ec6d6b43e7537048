// Small pieces of Markdown.

/** `1 file`, `3 files`. */
export const count = (number, noun) => `${number} ${noun}${number === 1 ? '' : noun.endsWith('s') ? 'es' : 's'}`;

/** `a`, `a and b`, `a, b and c`. */
export const list = (items) =>
  items.length < 2 ? items.join('') : `${items.slice(0, -1).join(', ')} and ${items.at(-1)}`;

/** Inline code, on one line. */
export function code(text) {
  const flat = oneLine(text, 200);
  return flat.includes('`') ? `\`\` ${flat} \`\`` : `\`${flat}\``;
}

/** A fence longer than any in the text. */
export function fence(text, language = '') {
  const ticks = '`'.repeat(Math.max(3, ...[...text.matchAll(/`+/g)].map((match) => match[0].length + 1)));
  return `${ticks}${language}\n${text.replace(/\n$/, '')}\n${ticks}`;
}

/** The text on one line, cut at so many characters. */
export function oneLine(text, maxChars = 160) {
  const flat = text.replace(/\s+/g, ' ').trim();
  return flat.length > maxChars ? `${flat.slice(0, maxChars - 1).trimEnd()}…` : flat;
}

/** The last lines of an output, with a note on what was left out. */
export function tail(text, maxLines = 30) {
  const lines = text.replace(/\n+$/, '').split('\n');
  if (lines.length <= maxLines) return lines.join('\n');
  return [`… ${count(lines.length - maxLines, 'line')} before`, ...lines.slice(-maxLines)].join('\n');
}
