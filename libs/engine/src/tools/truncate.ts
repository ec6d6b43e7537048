import type { ToolDescriptor } from '@margay/contracts';

/** Fields of a structured result that may be shortened; all others are facts. */
const TEXT_FIELDS = ['stdout', 'stderr', 'output', 'result', 'content', 'text'];
const LIST_FIELDS = ['entries', 'matches', 'files'];
const SHRINK_ROUNDS = 12;

interface Cut {
  maxChars: number;
  shares: { head: number; tail: number };
  /** How to get at what is left out. */
  hint: string;
}

export function cutOf(descriptor: ToolDescriptor, maxChars: number): Cut {
  return { maxChars, shares: descriptor.truncate, hint: readRestHint(descriptor.tool_id) };
}

function readRestHint(toolId: string): string {
  if (toolId === 'read_file') return 'call read_file with offset and limit for the rest';
  if (toolId.includes('shell')) return 'run it again through head, tail, sed or grep, or write its output to a file';
  return 'ask for less at once, or for the part that is missing';
}

/** Head and tail of a text with a marker between them; the text itself if it fits. */
export function cutText(text: string, { maxChars, shares, hint }: Cut): string {
  if (text.length <= maxChars) return text;
  const marker = `\n[... cut: ${text.length} characters in all, at most ${maxChars} shown; ${hint} ...]\n`;
  const room = Math.max(0, maxChars - marker.length);
  const total = shares.head + shares.tail || 1;
  const headChars = Math.floor((room * shares.head) / total);
  const tail = room - headChars > 0 ? text.slice(-(room - headChars)) : '';
  return whole(text.slice(0, headChars)) + marker + tail.replace(/^[\uDC00-\uDFFF]/, '');
}

/** Never ends in half of a surrogate pair. */
function whole(text: string): string {
  return text.replace(/[\uD800-\uDBFF]$/, '');
}

/** JSON of an object that fits, still valid: texts are cut and lists lose their last elements. */
export function cutObject(value: Record<string, unknown>, cut: Cut): string {
  let json = JSON.stringify(value);
  let current = value;
  for (let round = 0; json.length > cut.maxChars && round < SHRINK_ROUNDS; round += 1) {
    const field = largestField(current);
    if (field === undefined) break;
    current = { ...current, ...shrink(current, value, field, json.length - cut.maxChars, cut) };
    json = JSON.stringify(current);
  }
  return json.length <= cut.maxChars ? json : cutAnything(JSON.stringify(value), cut);
}

function largestField(object: Record<string, unknown>): string | undefined {
  const sized = [...TEXT_FIELDS, ...LIST_FIELDS]
    .map((field) => ({ field, size: sizeOf(object[field]) }))
    .filter(({ size }) => size > 0)
    .sort((a, b) => b.size - a.size);
  return sized[0]?.field;
}

function sizeOf(value: unknown): number {
  if (typeof value === 'string') return value.length;
  return Array.isArray(value) && value.length > 0 ? JSON.stringify(value).length : 0;
}

function shrink(
  current: Record<string, unknown>,
  original: Record<string, unknown>,
  field: string,
  excess: number,
  cut: Cut,
): Record<string, unknown> {
  const value = current[field];
  if (typeof value === 'string') {
    const escaped = JSON.stringify(value).length / Math.max(1, value.length);
    const maxChars = Math.max(0, Math.floor(value.length - (excess + 16) / escaped));
    return { [field]: cutText(String(original[field]), { ...cut, maxChars }) };
  }
  const list = value as unknown[];
  const kept = Math.floor(list.length * Math.max(0, 1 - (excess + 40) / JSON.stringify(list).length));
  return { [field]: list.slice(0, kept), [`${field}_omitted`]: (original[field] as unknown[]).length - kept };
}

/** The last resort: the start of the JSON text within a JSON object. */
function cutAnything(json: string, cut: Cut): string {
  for (let maxChars = cut.maxChars; maxChars > 16; maxChars = Math.floor(maxChars * 0.8)) {
    const wrapped = JSON.stringify({ truncated: true, content: cutText(json, { ...cut, maxChars: maxChars - 40 }) });
    if (wrapped.length <= cut.maxChars) return wrapped;
  }
  return '{"truncated":true}';
}
