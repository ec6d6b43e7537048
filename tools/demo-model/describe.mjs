// What can be said of a file from its text alone.
import { extname } from 'node:path/posix';
import { code, list, oneLine } from './text.mjs';

const LANGUAGES = {
  '.c': 'C', '.cc': 'C++', '.cpp': 'C++', '.cs': 'C#', '.css': 'CSS', '.go': 'Go', '.h': 'C headers', '.html': 'HTML',
  '.java': 'Java', '.js': 'JavaScript', '.mjs': 'JavaScript', '.cjs': 'JavaScript', '.jsx': 'JavaScript', '.json': 'JSON',
  '.kt': 'Kotlin', '.lua': 'Lua', '.md': 'Markdown', '.php': 'PHP', '.proto': 'Protocol Buffers', '.py': 'Python', '.rb': 'Ruby',
  '.rs': 'Rust', '.scala': 'Scala', '.scss': 'SCSS', '.sh': 'Shell', '.sql': 'SQL', '.swift': 'Swift', '.toml': 'TOML',
  '.ts': 'TypeScript', '.tsx': 'TypeScript', '.txt': 'plain text', '.vue': 'Vue', '.xml': 'XML', '.yaml': 'YAML', '.yml': 'YAML',
}; // prettier-ignore

/** The language of a file by its ending, or undefined. */
export const languageOf = (path) => LANGUAGES[extname(path).toLowerCase()];

const isCode = (path) =>
  !['Markdown', 'JSON', 'YAML', 'TOML', 'XML', 'plain text', undefined].includes(languageOf(path));
export const isSource = (path) => isCode(path) && !['CSS', 'SCSS', 'HTML', 'SQL'].includes(languageOf(path));

const DEFINITION =
  /^\s*(?:export\s+|default\s+|public\s+|private\s+|static\s+|abstract\s+|async\s+|pub\s+)*(?:class|def|function|func|fn|interface|struct|enum|trait)\s+(?:\([^)]*\)\s*)?([A-Za-z_$][\w$]*)/;
const SETTING =
  /^\s*(?:export\s+)?(?:const\s+|let\s+|var\s+)?["']?([A-Za-z_][\w.-]*)["']?\s*(?::\s*\w+\s*)?[=:]\s*([^=>\s{([][^\n]*?),?\s*$/;

/** One or more sentences on a file, each derived from its lines. */
export function describeFile(path, lines) {
  if (lines.every((line) => line.text.trim() === '')) return 'It is empty.';
  if (languageOf(path) === 'Markdown') return describeMarkdown(lines);
  if (languageOf(path) === 'JSON') return describeJson(lines) ?? describePlain(lines);
  if (isCode(path)) return describeCode(lines);
  return describeSettings(lines) ?? describePlain(lines);
}

function describeMarkdown(lines) {
  const headings = lines.filter((line) => /^#{1,6}\s/.test(line.text)).map((line) => line.text.replace(/^#+\s*/, ''));
  const paragraph = firstParagraph(lines);
  const [title, ...others] = headings;
  return [
    title && `It is titled “${oneLine(title, 80)}”.`,
    paragraph && `It says: “${oneLine(paragraph, 240)}”`,
    others.length > 0 && `Further headings: ${list(others.slice(0, 6).map((heading) => oneLine(heading, 60)))}.`,
  ]
    .filter(Boolean)
    .join(' ');
}

function firstParagraph(lines) {
  const isProse = (line) => /^\s*[^\s#`|<>[!*-]/.test(line.text);
  const start = lines.findIndex(isProse);
  if (start < 0) return undefined;
  const length = lines.slice(start).findIndex((line) => !isProse(line));
  return lines
    .slice(start, length < 0 ? undefined : start + length)
    .map((line) => line.text.trim())
    .join(' ');
}

function describeJson(lines) {
  const value = parse(lines.map((line) => line.text).join('\n'));
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined;
  const scripts = Object.keys(value.scripts ?? {});
  return [
    typeof value.name === 'string' && `Its name is ${code(value.name)}.`,
    typeof value.description === 'string' && `Its description: “${oneLine(value.description)}”`,
    scripts.length > 0 && `Its scripts: ${list(scripts.slice(0, 8).map(code))}.`,
    `Its top-level keys: ${list(Object.keys(value).slice(0, 10).map(code))}.`,
  ]
    .filter(Boolean)
    .join(' ');
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

function describeCode(lines) {
  const names = [...new Set(lines.flatMap((line) => DEFINITION.exec(line.text)?.[1] ?? []))];
  const defined =
    names.length > 0 &&
    `It defines ${list(names.slice(0, 8).map(code))}${names.length > 8 ? ` and ${names.length - 8} more` : ''}.`;
  const opening = openingComment(lines);
  const parts = [opening && `It begins: “${oneLine(opening, 200)}”`, defined, describeSettings(lines)].filter(Boolean);
  return parts.length > 0 ? parts.join(' ') : describePlain(lines);
}

/** The first line of what the author put on top: a docstring or a comment, but no `#!` line. */
function openingComment(lines) {
  const first = lines.find(({ text }) => text.trim() !== '' && !text.startsWith('#!'));
  const match = /^\s*(?:"""|\'\'\'|\/\*\*?|\/\/|#)\s*(.*?)\s*(?:"""|\'\'\'|\*\/)?$/.exec(first?.text ?? '');
  return match?.[1] || undefined;
}

function describeSettings(lines) {
  const settings = lines.flatMap((line) => {
    const match = /^\s*(?:#|\/\/|\*)/.test(line.text) ? null : SETTING.exec(line.text);
    return match ? [`${match[1]} = ${oneLine(match[2], 40)}`] : [];
  });
  if (settings.length === 0) return undefined;
  const more = settings.length > 6 ? ` and ${settings.length - 6} more` : '';
  return `It sets ${list(settings.slice(0, 6).map(code))}${more}.`;
}

function describePlain(lines) {
  const first = lines.find((line) => line.text.trim() !== '');
  return `Line ${first.number} reads: “${oneLine(first.text)}”`;
}
