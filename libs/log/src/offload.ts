import type { EventInput } from '@margay/contracts';
import type { BlobReference, BlobStore } from './blobs';
import { LOG_RECORD_KINDS, type OpenRecord } from './record';
import { COMMIT_MAX_BYTES, jsonBytes, packedBytes } from './size';

/** Longer event fields become a preview and a blob; UTF-16 units. */
export const FIELD_MAX_CHARS = 100_000;
const PREVIEW_HEAD_CHARS = 50_000;
const PREVIEW_TAIL_CHARS = 10_000;
/** Longer private texts become blobs; UTF-8 bytes. */
const PRIVATE_MAX_BYTES = 32 * 1024;
/** Room for the head and the frames' own fields. */
const COMMIT_TARGET_BYTES = COMMIT_MAX_BYTES - 64 * 1024;
/** Texts below this stay where they are, whatever the commit's size. */
const SMALLEST_CHARS = 500;

interface Bundle {
  events: EventInput[];
  records: OpenRecord[];
}

export type Put = (text: string) => Promise<string>;

/**
 * The same events and records with large texts in the blob store: event fields above 100,000 characters keep a preview
 * (first 50,000 + last 10,000) beside `<field>_truncated` and `<field>_blob`; private texts above 32 KB that no event
 * field holds whole become `{ $blob }`; then the largest texts follow until the commit fits 512 KB. Each record that may
 * be read with `inlineBlobs` must have passed here, also small ones.
 * @param besideBytes what else the commit holds
 */
export async function offload<T extends Bundle>(
  tenantId: string,
  bundle: T,
  blobs: BlobStore,
  besideBytes = 0,
): Promise<T> {
  const text = JSON.stringify(bundle);
  const isSmall = Buffer.byteLength(text) < PRIVATE_MAX_BYTES;
  if (isSmall && !text.includes('$blob"')) return bundle;
  const put: Put = (whole) => blobs.put(tenantId, Buffer.from(whole, 'utf8'));
  let events = await Promise.all(bundle.events.map((event) => previewFields(event, FIELD_MAX_CHARS, put)));
  let records = await blobTexts(bundle.records.map(escapeBlobs), PRIVATE_MAX_BYTES, events, put);
  for (let limit = FIELD_MAX_CHARS / 2; size(events, records) + besideBytes > COMMIT_TARGET_BYTES; limit /= 2) {
    if (limit < SMALLEST_CHARS) break;
    events = await Promise.all(events.map((event) => previewFields(event, limit, put)));
    records = await blobTexts(records, limit / 2, events, put);
  }
  return { ...bundle, events, records };
}

function size(events: EventInput[], records: OpenRecord[]): number {
  const payloads = events.map(({ payload }) => payload);
  return jsonBytes(events) + packedBytes(records, payloads);
}

/** The event with fields above this length cut to a preview. */
export async function previewFields(event: EventInput, maxChars: number, put: Put): Promise<EventInput> {
  const payload: Record<string, unknown> = { ...event.payload };
  for (const [field, value] of Object.entries(event.payload)) {
    const text = typeof value === 'string' ? value : JSON.stringify(value);
    if (text === undefined || text.length <= maxChars) continue;
    // A field cut before keeps the reference to its whole text.
    const isCut = payload[`${field}_truncated`] === true && payload[`${field}_blob`] !== undefined;
    if (!isCut) payload[`${field}_blob`] = await blobOf(text, put);
    payload[field] = preview(text, maxChars);
    payload[`${field}_truncated`] = true;
  }
  return { ...event, payload } as EventInput;
}

export async function blobOf(text: string, put: Put): Promise<BlobReference> {
  const id = await put(text);
  return { id, bytes: Buffer.byteLength(text), sha256: id };
}

/** Beginning and end of a text; no pair of surrogates is cut in two. */
export function preview(text: string, maxChars: number): string {
  const share = Math.min(1, maxChars / FIELD_MAX_CHARS);
  const head = text.slice(0, PREVIEW_HEAD_CHARS * share).replace(/[\uD800-\uDBFF]$/, '');
  const tail = text.slice(-PREVIEW_TAIL_CHARS * share).replace(/^[\uDC00-\uDFFF]/, '');
  return head + tail;
}

/** Large texts that no event field holds whole become references to blobs. */
function blobTexts(records: OpenRecord[], maxBytes: number, events: EventInput[], put: Put): Promise<OpenRecord[]> {
  const held = fieldTexts(events);
  const replace = async (value: unknown): Promise<unknown> => {
    if (typeof value === 'string')
      return isLong(value, maxBytes) && !held.has(value) ? { $blob: await put(value) } : value;
    return mapFields(value, replace, (key) => key);
  };
  return Promise.all(records.map((record) => replace(record) as Promise<OpenRecord>));
}

function isLong(text: string, maxBytes: number): boolean {
  return text.length > maxBytes / 4 && Buffer.byteLength(text) > maxBytes;
}

function fieldTexts(events: EventInput[]): Set<string> {
  const payloads = events.map(({ payload }) => payload as Record<string, unknown>);
  return new Set(payloads.flatMap((payload) => Object.values(payload)).filter((value) => typeof value === 'string'));
}

/** The record with its blob references resolved. Of the log's own kinds only the text may be one. */
export async function inlineBlobs<T>(tenantId: string, record: T, blobs: BlobStore): Promise<T> {
  const read = async (id: string): Promise<string> => Buffer.from(await blobs.get(tenantId, id)).toString('utf8');
  const { kind, text } = record as { kind?: unknown; text?: unknown };
  if (typeof kind === 'string' && LOG_RECORD_KINDS.has(kind)) {
    const whole = blobReference(text);
    return whole === undefined ? record : { ...record, text: await read(whole) };
  }
  const resolve = async (value: unknown): Promise<unknown> => {
    const id = blobReference(value);
    return id === undefined ? mapFields(value, resolve, unescapeKey) : read(id);
  };
  return (await resolve(record)) as T;
}

function blobReference(value: unknown): string | undefined {
  const { $blob } = (value ?? {}) as { $blob?: unknown };
  return typeof $blob === 'string' ? $blob : undefined;
}

/** A key of the data itself that looks like a reference gets one more dollar, so that nobody can forge one. */
const LOOKS_LIKE_REFERENCE = /^\$+blob$/;
const unescapeKey = (key: string): string => (LOOKS_LIKE_REFERENCE.test(key) ? key.slice(1) : key);

function escapeBlobs(record: OpenRecord): OpenRecord {
  if (!JSON.stringify(record).includes('$blob"')) return record;
  const escapeKey = (key: string): string => (LOOKS_LIKE_REFERENCE.test(key) ? `$${key}` : key);
  const escape = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(escape);
    if (value === null || typeof value !== 'object') return value;
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [escapeKey(key), escape(item)]));
  };
  return escape(record) as OpenRecord;
}

async function mapFields(
  value: unknown,
  onValue: (value: unknown) => Promise<unknown>,
  onKey: (key: string) => string,
): Promise<unknown> {
  if (Array.isArray(value)) return Promise.all(value.map(onValue));
  if (value === null || typeof value !== 'object') return value;
  const fields = Object.entries(value).map(async ([key, item]) => [onKey(key), await onValue(item)] as const);
  return Object.fromEntries(await Promise.all(fields));
}
