import { describeFile, isSource, languageOf } from '../describe.mjs';
import { fileLines } from '../results.mjs';
import { code, count, list, oneLine } from '../text.mjs';
import { lacking } from '../toolbox.mjs';
import { notRead } from './read.mjs';

const MANIFEST =
  /^(?:package\.json|pyproject\.toml|Cargo\.toml|go\.mod|pom\.xml|composer\.json|setup\.py|requirements\.txt|Makefile|Dockerfile)$/;
const ENTRY = /^(?:main|app|index|cli|server|config|settings|__main__)\.\w+$/;
const MAX_TELLING = 3;
const nameOf = (path) => path.slice(path.lastIndexOf('/') + 1);
const depthOf = (path) => path.split('/').length;

/** Lists the workspace, reads its most telling files in one step, and says what is there. */
export function* look(_, tools) {
  if (!tools.has('list')) return `${lacking('list')}, so I cannot look around.`;
  const [listing] = yield { say: 'Listing the workspace.', calls: [tools.list('.')] };
  if (listing.kind === 'error') return `Listing the workspace failed. The tool said: “${oneLine(listing.text, 300)}”`;
  if (listing.kind !== 'dir') return `Listing the workspace returned no files, but: “${oneLine(listing.text, 300)}”`;
  const entries = listing.entries ?? [];
  if (entries.length === 0) return 'The workspace is empty: the listing shows no files.';
  const telling = tools.has('read') ? pickTelling(entries) : [];
  const results =
    telling.length === 0
      ? []
      : yield {
          say: `${count(entries.length, 'file')}; reading ${list(telling.map(code))}.`,
          calls: telling.map((path) => tools.read(path)),
        };
  return report(entries, listing.truncated === true, telling, results);
}

/** Up to three files: a README, what describes the project, where the program starts; shallow ones first. */
function pickTelling(entries) {
  const sorted = entries.toSorted((a, b) => depthOf(a) - depthOf(b) || (a < b ? -1 : 1));
  const isReadme = (path) => /^readme(?:\.\w+)?$/i.test(nameOf(path));
  const wishes = [
    isReadme,
    (path) => MANIFEST.test(nameOf(path)),
    (path) => ENTRY.test(nameOf(path)) && isSource(path),
    isSource,
    (path) => languageOf(path) !== undefined,
  ];
  const picked = new Set();
  for (const wish of wishes) {
    const path = sorted.find((candidate) => wish(candidate) && !picked.has(candidate));
    if (path !== undefined && picked.size < MAX_TELLING) picked.add(path);
  }
  return [...picked];
}

function report(entries, isCut, telling, results) {
  const files = telling.map((path, index) => {
    const result = results[index];
    if (result.kind !== 'file') return `- ${notRead(path, result)}`;
    const lines = fileLines(result);
    return `- **${path}** (${count(result.total_lines ?? lines.length, 'line')}): ${describeFile(path, lines)}`;
  });
  return [
    '## What is in this workspace',
    overview(entries, isCut),
    layout(entries),
    files.length > 0 && `### What I read\n\n${files.join('\n')}`,
  ]
    .filter(Boolean)
    .join('\n\n');
}

function overview(entries, isCut) {
  const languages = tally(entries.map((path) => languageOf(path) ?? 'other'));
  const kinds = languages.slice(0, 6).map(([language, files]) => `${language} (${files})`);
  const cut = isCut ? ' The listing was cut, so there are more.' : '';
  return `The listing shows ${count(entries.length, 'file')}, by kind: ${list(kinds)}${languages.length > 6 ? ' and others' : ''}.${cut}`;
}

function layout(entries) {
  const folders = tally(entries.filter((path) => path.includes('/')).map((path) => path.slice(0, path.indexOf('/'))));
  const top = entries.filter((path) => !path.includes('/'));
  const shown = [
    ...folders.slice(0, 8).map(([folder, files]) => `- ${code(`${folder}/`)}: ${count(files, 'file')}`),
    folders.length > 8 && `- and ${count(folders.length - 8, 'more folder')}`,
    top.length > 0 &&
      `- at the top: ${list(top.slice(0, 10).map(code))}${top.length > 10 ? ` and ${top.length - 10} more` : ''}`,
  ];
  return shown.filter(Boolean).join('\n');
}

/** `[name, how often]`, the most frequent first. */
function tally(names) {
  const counts = new Map();
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
}
