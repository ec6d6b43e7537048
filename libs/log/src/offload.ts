import type { EventInput } from '@margay/contracts';
import type { BlobStore } from './blobs';
import { COMMIT_MAX_BYTES } from './commit-loop';
import type { OpenRecord } from './record';

/** Longer event fields become a preview and a blob; UTF-16 units. */
const FIELD_MAX_CHARS = 100_000;
const PREVIEW_HEAD_CHARS = 50_000;
const PREVIEW_TAIL_CHARS = 10_000;
/** Longer private texts become blobs; UTF-8 bytes. */
const PRIVATE_MAX_BYTES = 32 * 1024;
/** Room for the head and the frame's own fields. */
const COMMIT_TARGET_BYTES = COMMIT_MAX_BYTES - 64 * 1024;

interface Bundle {
  events: EventInput[];
  records: OpenRecord[];
}

/**
 * The same events and records with large texts in the blob store: event fields above 100,000 characters keep a preview
 * (first 50,000 + last 10,000) beside `<field>_truncated` and `<field>_blob`; private texts above 32 KB that no event
 * field holds whole become `{ $blob }`; then the largest texts follow until the commit fits 512 KB.
 */
export async function offload<T extends Bundle>(tenantId: string, bundle: T, blobs: BlobStore): Promise<T> {
  if (JSON.stringify(bundle).length < PRIVATE_MAX_BYTES) return bundle;
  const put = (text: string): Promise<string> => blobs.put(tenantId, Buffer.from(text, 'utf8'));
  let events = await Promise.all(bundle.events.map((event) => previewFields(event, FIELD_MAX_CHARS, put)));
  let records = await Promise.all(
    bundle.records.map((record) => blobTexts(record, PRIVATE_MAX_BYTES, fieldTexts(events), put)),
  );
  for (let limit = FIELD_MAX_CHARS / 2; size(events, records) > COMMIT_TARGET_BYTES && limit > 500; limit /= 2) {
    events = await Promise.all(events.map((event) => previewFields(event, limit, put)));
    records = await Promise.all(records.map((record) => blobTexts(record, limit / 2, fieldTexts(events), put)));
  }
  return { ...bundle, events, records };
}

/** Size after packing: a private text that an event field holds is stored once. */
function size(events: EventInput[], records: OpenRecord[]): number {
  const shared = fieldTexts(events);
  const own = JSON.stringify(records, (_key, value: unknown) =>
    typeof value === 'string' && shared.has(value) ? '' : value,
  );
  return JSON.stringify(events).length + own.length;
}

function fieldTexts(events: EventInput[]): Set<string> {
  const texts = new Set<string>();
  for (const { payload } of events)
    for (const value of Object.values(payload)) if (typeof value === 'string') texts.add(value);
  return texts;
}

async function previewFields(
  event: EventInput,
  maxChars: number,
  put: (text: string) => Promise<string>,
): Promise<EventInput> {
  const payload: Record<string, unknown> = { ...event.payload };
  for (const [field, value] of Object.entries(event.payload)) {
    const text = typeof value === 'string' ? value : JSON.stringify(value);
    if (text === undefined || text.length <= maxChars) continue;
    // A field cut before keeps the reference to its whole text.
    const whole = payload[`${field}_blob`] ?? {
      id: await put(text),
      bytes: Buffer.byteLength(text),
    };
    payload[field] = preview(text, maxChars);
    payload[`${field}_truncated`] = true;
    payload[`${field}_blob`] = withSha(whole as { id: string; bytes: number });
  }
  return { ...event, payload } as EventInput;
}

function withSha(blob: { id: string; bytes: number }): { id: string; bytes: number; sha256: string } {
  return { ...blob, sha256: blob.id };
}

function preview(text: string, maxChars: number): string {
  const share = Math.min(1, maxChars / FIELD_MAX_CHARS);
  return text.slice(0, PREVIEW_HEAD_CHARS * share) + text.slice(-PREVIEW_TAIL_CHARS * share);
}

async function blobTexts(
  record: OpenRecord,
  maxBytes: number,
  held: ReadonlySet<string>,
  put: (text: string) => Promise<string>,
): Promise<OpenRecord> {
  const replace = async (value: unknown): Promise<unknown> => {
    if (typeof value === 'string')
      return value.length > maxBytes / 4 && Buffer.byteLength(value) > maxBytes && !held.has(value)
        ? { $blob: await put(value) }
        : value;
    if (Array.isArray(value)) return Promise.all(value.map(replace));
    if (value !== null && typeof value === 'object')
      return Object.fromEntries(
        await Promise.all(Object.entries(value).map(async ([key, item]) => [key, await replace(item)])),
      );
    return value;
  };
  return (await replace(record)) as OpenRecord;
}

/** The record with its blob references resolved. */
export async function inlineBlobs<T>(tenantId: string, record: T, blobs: BlobStore): Promise<T> {
  const resolve = async (value: unknown): Promise<unknown> => {
    if (value === null || typeof value !== 'object') return value;
    if (Array.isArray(value)) return Promise.all(value.map(resolve));
    const { $blob } = value as { $blob?: unknown };
    if (typeof $blob === 'string') return Buffer.from(await blobs.get(tenantId, $blob)).toString('utf8');
    return Object.fromEntries(
      await Promise.all(Object.entries(value).map(async ([key, item]) => [key, await resolve(item)])),
    );
  };
  return (await resolve(record)) as T;
}
