import { createHash } from 'node:crypto';
import { WORDS } from './stored-words';

/** A document of the collection `commits` as the driver gives it, see docs/decisions/0006. */
export interface RawCommit {
  _id: string;
  v: number;
  tenantId: string;
  sessionId: string;
  commitIds: string[];
  commands: (Bytes | Record<string, unknown>)[];
  answers?: string;
  events?: (string | { seq: number; ts: number; frame: string })[];
  records?: string[];
  head: string;
  effects?: unknown[];
  effectsDueAt?: number;
  ts0: number;
  hash: Bytes;
}

type Bytes = string | Uint8Array | { buffer: Uint8Array };

/** As much of a session's state as is checked. */
export interface StoredHead extends Record<string, unknown> {
  c: number;
  seq: number;
  ts: number;
  epoch: number;
  run: { id: string; state: string; owner: string | null } | null;
}

/** A commit as it was when its hash was made. */
export interface StoredCommit {
  sessionId: string;
  c: number;
  commitIds: string[];
  /** Texts of public events: what clients were to see, byte for byte. */
  frames: string[];
  head: StoredHead;
  ts0: number;
  hash: string;
  /** Everything the hash is over. */
  body: Record<string, unknown>;
}

/** Reads the stored form by its description; shares nothing with the code that writes it. */
export function readCommit(raw: RawCommit): StoredCommit {
  const { _id, v, tenantId, sessionId, commitIds, events = [], records = [], effects = [], ts0 } = raw;
  const c = Number(_id.slice(-10));
  const base = { ...NEW_SESSION, tenantId, sessionId, c, ts: ts0 + Math.max(0, events.length - 1) };
  const head = { ...base, ...(JSON.parse(expand(raw.head, 'head', sessionId)) as object) } as unknown as StoredHead;
  const first = head.seq - events.length + 1;
  const frames = events.map((event, index) => readEvent(event, sessionId, first + index, ts0 + index));
  const body = {
    _id,
    v,
    tenantId,
    sessionId,
    c,
    commitIds,
    commands: readCommands(raw),
    events: frames,
    records: records.map((record) => expand(record, 'record', sessionId)),
    head,
    effects,
    ts0,
  };
  return { sessionId, c, commitIds, frames: frames.map(({ frame }) => frame), head, ts0, hash: hexOf(raw.hash), body };
}

/** SHA-256 over the previous hash, a line break, and the canonical JSON of everything but the hash and the due time. */
export function hashAfter(previousHash: string, { body }: StoredCommit): string {
  return createHash('sha256')
    .update(previousHash + '\n' + canonical(body))
    .digest('hex');
}

/** What a head says of a session of which nothing is known. */
const NEW_SESSION = {
  v: 1,
  seq: 0,
  createdTs: 0,
  owner: '',
  tag: null,
  title: null,
  context: {},
  binding: { project: null, cwd: null },
  epoch: 0,
  runNo: 0,
  run: null,
  lastRun: null,
  inboxEnd: 0,
  sandbox: null,
  terminated: null,
  cuts: [],
};

function readCommands({ commitIds, commands, answers }: RawCommit): unknown[] {
  const all = answers === undefined ? [] : (JSON.parse(answers) as unknown[]);
  return commands.map((command, index) =>
    typeof command === 'object' && 'commitId' in command
      ? command
      : { commitId: commitIds[index], bodyHash: hexOf(command as Bytes), answer: all[index] ?? {} },
  );
}

function readEvent(event: string | { seq: number; ts: number; frame: string }, id: string, seq: number, ts: number) {
  if (typeof event !== 'string') return event;
  const text = expand(event, 'event', id);
  if (text.startsWith('{')) return { seq, ts, frame: text };
  const [, type, run, payload] = /^(\S*) (\S*) (.*)$/s.exec(text) ?? [];
  const tail = run === '' ? '}' : `,"run_id":"${run}"}`;
  return { seq, ts, frame: `{"ts":"${timeOf(ts)}","type":"${type}","payload":${payload},"seq":${seq}${tail}` };
}

function timeOf(micros: number): string {
  const whole = new Date(Math.floor(micros / 1e6) * 1e3).toISOString().slice(0, 19);
  return `${whole}.${String(micros % 1e6).padStart(6, '0')}+00:00`;
}

function expand(text: string, kind: keyof typeof WORDS, sessionId: string): string {
  let plain = '';
  for (const character of text) {
    const code = character.charCodeAt(0);
    if (code >= 32) plain += character;
    else plain += code === 1 ? sessionId : word(kind, code - 2);
  }
  return plain;
}

function word(kind: keyof typeof WORDS, index: number): string {
  const found = WORDS[kind][index];
  if (found === undefined)
    throw new Error(`a stored ${kind} uses word ${index}, which stored-words.ts does not know: let it grow as well`);
  return found;
}

function hexOf(bytes: Bytes): string {
  if (typeof bytes === 'string') return bytes;
  return Buffer.from('buffer' in bytes && !ArrayBuffer.isView(bytes) ? bytes.buffer : (bytes as Uint8Array)).toString(
    'hex',
  );
}

/** Keys sorted, undefined left out, lone surrogates replaced. */
function canonical(value: unknown): string {
  if (Array.isArray(value)) return '[' + value.map((item) => canonical(item ?? null)).join() + ']';
  if (typeof value === 'string') return JSON.stringify(value.toWellFormed());
  if (typeof value !== 'object' || value === null) return JSON.stringify(value ?? null);
  const fields = Object.entries(value).filter(([, field]) => field !== undefined);
  fields.sort(([a], [b]) => (a < b ? -1 : 1));
  return '{' + fields.map(([key, field]) => canonical(key) + ':' + canonical(field)).join() + '}';
}
