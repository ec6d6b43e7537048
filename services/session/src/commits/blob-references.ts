import type { CommitDocument } from '@margay/log';

/** `text_blob: { id … }` beside a preview in an event. The quotes of a text inside JSON are escaped, so none is forged. */
const IN_EVENT = /_blob":\{[^{}]*?"id":"([0-9a-f]{64})"/g;
/** In place of a text in a private record. */
const IN_RECORD = /"\$blob":"([0-9a-f]{64})"/g;

/** Ids of the blobs without which a commit could not be read whole, each once. */
export function blobsOf({ events, records }: Pick<CommitDocument, 'events' | 'records'>): string[] {
  const found = new Set<string>();
  for (const { frame } of events) collect(frame, '_blob":', IN_EVENT, found);
  for (const record of records) collect(record, '"$blob":', IN_RECORD, found);
  return [...found];
}

function collect(text: string, sign: string, pattern: RegExp, found: Set<string>): void {
  if (!text.includes(sign)) return;
  for (const [, id] of text.matchAll(pattern)) if (id !== undefined) found.add(id);
}
