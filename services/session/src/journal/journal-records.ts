import type { runnersPb } from '@margay/contracts';
import { inlineBlobs, unpackRecord, type BlobStore, type CommitDocument } from '@margay/log';

/** Records per page; each holds at most a commit's worth of text, or a blob's. */
const PAGE_RECORDS = 100;
const PAGE_BYTES = 256 * 1024;

/** Texts of a commit's private records, with everything they refer to put in. */
export function recordsOf(document: CommitDocument, blobs: BlobStore): Promise<string[]> {
  const frames = document.events.map(({ frame }) => frame);
  return Promise.all(
    document.records.map(async (text) => {
      if (!text.includes('$event"') && !text.includes('$blob"')) return text;
      return JSON.stringify(await inlineBlobs(document.tenantId, unpackRecord(text, frames), blobs));
    }),
  );
}

/** What the commit adds to the inbox of the running agent. */
export async function inboxItemsOf(document: CommitDocument, blobs: BlobStore): Promise<runnersPb.InboxItem[]> {
  if (!document.records.some((text) => text.startsWith('{"kind":"inbox"'))) return [];
  const records = (await recordsOf(document, blobs)).map((text) => JSON.parse(text) as Record<string, unknown>);
  return records
    .filter(({ kind }) => kind === 'inbox')
    .map(({ n, item, text, callId = '', outcome = '' }) => ({
      n: Number(n),
      kind: String(item),
      text: String(text),
      callId: String(callId),
      outcome: String(outcome),
    }));
}

/** Records on their way to a runner, grouped into messages. */
export class RecordPage {
  private records: runnersPb.JournalRecord[] = [];
  private bytes = 0;

  get isFull(): boolean {
    return this.records.length >= PAGE_RECORDS || this.bytes >= PAGE_BYTES;
  }

  add(c: number, json: string): void {
    this.records.push({ c, json });
    this.bytes += json.length;
  }

  take(): runnersPb.JournalRecord[] {
    const { records } = this;
    this.records = [];
    this.bytes = 0;
    return records;
  }
}
