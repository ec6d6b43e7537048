// From what a person wrote to tasks, by fixed rules.

const KNOWN_NAMES = /^(?:readme|makefile|dockerfile|license|changelog|gemfile|procfile|jenkinsfile)$/i;
const FILE_NAME = /^@?(?:[\w.-]+\/)*[\w-]*\.?[\w-]+\.[a-z][a-z0-9]{0,7}$|^@?(?:[\w.-]+\/)+[\w.-]+$|^\.[a-z][\w.-]+$/i;

const unquote = (text) => text.trim().replace(/^(["'`])([\s\S]*)\1$/, '$2');
const trimEnd = (text) => text.trim().replace(/[.,;:!?]+$/, '');

/** The file names a text mentions, in order, each once. */
export function findPaths(text) {
  const words = text.match(/`[^`\n]+`|"[^"\n]+"|'[^'\n]+'|\S+/g) ?? [];
  const names = words.map((word) => unquote(trimEnd(word)).replace(/^@/, ''));
  return [
    ...new Set(names.filter((name) => KNOWN_NAMES.test(name) || (FILE_NAME.test(name) && !name.includes('://')))),
  ];
}

/** The tasks of a message in order; undefined if no rule fits the whole of it. */
export function findTasks(text) {
  const parts = splitSteps(text).map(findTask);
  if (parts.every(Boolean)) return parts;
  const whole = findTask(text);
  return whole && [whole];
}

const STEP =
  /[,;.]?\s+(?:and\s+)?then,?\s+|[,;]?\s+and\s+(?=(?:run|execute|create|write|show)\b)|[.!;]\s+(?=(?:run|execute|read|create|write|change|set|show)\b)/gi;

/** Cuts at "then", at "and run" and the like, and between sentences, but never inside quotes or fences. */
function splitSteps(text) {
  const quoted = [...text.matchAll(/```[\s\S]*?```|`[^`]*`|"[^"]*"/g)].map((match) => [
    match.index,
    match.index + match[0].length,
  ]);
  const steps = [];
  let from = 0;
  for (const match of text.matchAll(STEP)) {
    if (quoted.some(([start, end]) => match.index >= start && match.index < end)) continue;
    steps.push(text.slice(from, match.index));
    from = match.index + match[0].length;
  }
  return [...steps, text.slice(from)].filter((step) => step.trim() !== '');
}

function findTask(text) {
  return (
    replaceTask(text) ??
    changeTask(text) ??
    writeTask(text) ??
    runTask(text) ??
    readTask(text) ??
    lookTask(text) ??
    talkTask(text)
  );
}

function replaceTask(text) {
  const match = /\breplace\s+(["'`])([\s\S]+?)\1\s+(?:with|by)\s+(["'`])([\s\S]*?)\3/i.exec(text);
  const path = match && findPaths(text.replace(match[0], ' '))[0];
  return path ? { kind: 'replace', path, before: match[2], after: match[4] } : undefined;
}

function changeTask(text) {
  const match =
    /\b(?:change|set|update)\s+(?:the\s+)?(?:value\s+of\s+)?([`"']?)([\w.$-]+)\1(?:\s+in\s+(\S+))?(?:\s+from\s+\S+)?\s*(?:\bto\b|=)\s*([\s\S]+)$/i.exec(
      text,
    );
  if (!match) return undefined;
  const [, , key, place, rest] = match;
  const { value, after } = splitValue(rest);
  const path = [place ?? '', after, text.slice(0, match.index)].flatMap(findPaths)[0];
  return path ? { kind: 'change', path, key, value } : undefined;
}

/** A quoted value is taken whole; a bare one ends at `in FILE`, or where the sentence goes on. */
function splitValue(text) {
  const quoted = /^\s*(["'`])[\s\S]*?\1(?=[\s.,;!]|$)/.exec(text)?.[0];
  const bare = text.split(/\n|,?\s+(?:and|so|because|please|thanks)\b|[.;!]\s+/)[0];
  const ending = /\s+in\s+(\S+)$/i.exec(trimEnd(bare));
  const isFile = ending !== null && findPaths(ending[1]).length > 0;
  const value = quoted ?? (isFile ? bare.slice(0, ending.index) : bare);
  return {
    value: quoted ? value.trim() : trimEnd(value),
    after: /^\s*in\s+(\S+)/i.exec(text.slice(value.length))?.[1] ?? '',
  };
}

function writeTask(text) {
  const match =
    /\b(?:write|create|make|add|save)\s+(?:a\s+|an\s+|the\s+|new\s+|file\s+|called\s+|named\s+)*(\S+?)[,:]?\s+(?:with|containing|that says|saying|which says):?\s+([\s\S]+)$/i.exec(
      text,
    );
  const path = match && findPaths(match[1])[0];
  if (path) return { kind: 'write', path, content: contentOf(match[2]) };
  const colon = /\b(?:write|create|save)\s+(?:a\s+|the\s+|new\s+|file\s+)*(\S+?):\s*([\s\S]+)$/i.exec(text);
  const named = colon && findPaths(colon[1])[0];
  return named ? { kind: 'write', path: named, content: contentOf(colon[2]) } : undefined;
}

/** A fenced block, a quoted text, or all the rest. */
function contentOf(text) {
  const fenced = /```[^\n]*\n([\s\S]*?)```/.exec(text);
  if (fenced) return fenced[1];
  const spoken = text.trim().replace(/^(?:the\s+)?(?:text|content|contents|line|words)\s*:?\s+/i, '');
  const quoted = /^(["'`])([\s\S]+?)\1[.!]?$/.exec(spoken);
  return `${(quoted ? quoted[2] : spoken).replace(/\\n/g, '\n')}\n`;
}

function runTask(text) {
  if (/\b(?:run|execute|start)\s+(?:all\s+|the\s+|its\s+|my\s+)*(?:unit\s+)?tests?\b(?!\S)/i.test(trimEnd(text)))
    return { kind: 'test' };
  const match =
    /\b(?:run|execute)\s+(?:the\s+)?(?:shell\s+)?(?:command\s+)?:?\s*(?:`([^`]+)`|```[^\n]*\n([\s\S]*?)```|([\s\S]+))$/i.exec(
      text.trim(),
    );
  const command = match && (match[1] ?? match[2] ?? trimEnd(match[3])).trim();
  return command ? { kind: 'run', command } : undefined;
}

function readTask(text) {
  const paths = findPaths(text);
  const asks =
    /\b(?:read|open|show|cat|print|view|summari[sz]e|explain|describe|what(?:'s| is| does)|look (?:at|into))\b/i.test(
      text,
    );
  return asks && paths.length > 0 ? { kind: 'read', paths: paths.slice(0, 5) } : undefined;
}

function lookTask(text) {
  const looks =
    /\blook around\b|\b(?:workspace|project|repo|repository|codebase|code base|directory|folder)\b|\bwhat(?:'s| is| are) (?:in )?(?:here|this|these)\b|\b(?:explain|describe|explore|overview|structure)\b|\blist\b.*\bfiles?\b|\b(?:what|which) files\b/i;
  return looks.test(text) ? { kind: 'look' } : undefined;
}

function talkTask(text) {
  const isAsked = /\bsay (?:hello|hi)\b|\b(?:who|what) are you\b|\bwhat can you do\b/i.test(text);
  const isPolite = /\b(?:hello|hi|hey|good (?:morning|evening|day)|help|thanks?|thank you)\b/i.test(text);
  return isAsked || isPolite ? { kind: 'talk', isAsked } : undefined;
}
