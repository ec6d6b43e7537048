import { acceptCommand, hashed, messageCommand } from '@margay/testing';
import { fold } from './build';
import type { FinishCommand, StepCommand } from './command';
import type { CommitDocument } from './document';
import { emptyHead } from './head';
import { MemoryBlobStore } from './memory-blobs';
import { inlineBlobs } from './offload';
import { offloadCommand } from './offload-command';
import { unpackRecord } from './references';
import { COMMIT_MAX_BYTES, commandBytes } from './size';

const TENANT = 'tenant';
let blobs: MemoryBlobStore;

beforeEach(() => {
  blobs = new MemoryBlobStore();
});

/** Private records of a commit as their readers get them. */
async function records({ records: texts, events }: CommitDocument): Promise<Record<string, unknown>[]> {
  const frames = events.map(({ frame }) => frame);
  return Promise.all(texts.map((text) => inlineBlobs(TENANT, unpackRecord(text, frames), blobs)));
}

function committed(...commands: Parameters<typeof hashed>[0][]): CommitDocument {
  const tip = { head: { ...emptyHead('s'), c: 1, tenantId: TENANT }, hash: '' };
  const { document } = fold(tip, commands.map(hashed), 1_700_000_000_000_000);
  if (!document) throw new Error('document expected');
  return document;
}

const payloads = ({ events }: CommitDocument): Record<string, unknown>[] =>
  events.map(({ frame }) => (JSON.parse(frame) as { payload: Record<string, unknown> }).payload);

describe('what a person says', () => {
  it('stays as it is up to 100,000 characters', async () => {
    const command = acceptCommand('q', { text: 'x'.repeat(100_000) });
    expect(await offloadCommand(TENANT, command, blobs)).toEqual(command);
  });

  it.each([
    ['500,000 characters of three bytes', '語'.repeat(500_000)],
    ['90,000 characters that JSON writes as six', '\u0001'.repeat(90_000)],
  ])('fits into a commit and is read whole: %s', async (_, text) => {
    const accept = await offloadCommand(TENANT, acceptCommand('q', { text }), blobs);
    const message = await offloadCommand(TENANT, { ...messageCommand('m'), run: accept.run }, blobs);
    expect(commandBytes(accept)).toBeLessThan(COMMIT_MAX_BYTES);
    const document = committed(accept, message);
    const found = await records(document);
    expect(found.find(({ kind }) => kind === 'user')?.['text']).toBe(text);
    expect(found.find(({ kind }) => kind === 'inbox')?.['text']).toBe(text);
    const id = accept.run.textBlob?.id;
    const shown = payloads(document).filter((payload) => payload['text'] !== undefined);
    expect(shown).toHaveLength(2);
    for (const payload of shown) {
      expect(String(payload['text'])).toHaveLength(60_000);
      expect(payload).toMatchObject({
        text_truncated: true,
        text_blob: { id, sha256: id, bytes: Buffer.byteLength(text) },
      });
    }
    expect(document.head.title).toBe(text.trim().slice(0, 120));
  });

  it('names no blob by what it attaches or looks like', async () => {
    const id = await blobs.put(TENANT, Buffer.from('secret of another session'));
    const text = JSON.stringify({ $blob: id });
    const found = await records(committed(acceptCommand('q', { text, attachments: [{ $blob: id }] })));
    expect(found.find(({ kind }) => kind === 'user')).toMatchObject({ text, attachments: [{ $blob: id }] });
  });
});

describe('what a model answers', () => {
  const finish = (fields: Partial<FinishCommand>): FinishCommand => ({
    kind: 'finish',
    commitId: 'f',
    runId: 's:r1',
    epoch: 2,
    events: [],
    records: [],
    text: '',
    completion: { done: true, done_reason: 'completed' },
    ...fields,
  });
  const claim = { kind: 'claim' as const, commitId: 'c', runId: 's:r1', epoch: 1, owner: 'x' };

  it('ends its run, however long it is, with one blob for text and result', async () => {
    const text = 'x'.repeat(400_000);
    const command = finish({
      text,
      completion: { done: true, done_reason: 'completed', task_result: text },
      records: [{ kind: 'assistant', text }],
    });
    const offloaded = await offloadCommand(TENANT, command, blobs);
    const document = committed(acceptCommand('q'), claim, offloaded);
    const found = await records(document);
    expect(found.filter(({ text: whole }) => whole === text).map(({ kind }) => kind)).toEqual(['assistant', 'end']);
    const [assistant, completion] = payloads(document).slice(-2);
    expect(assistant).toMatchObject({ text_blob: offloaded.textBlob });
    expect(completion).toMatchObject({ task_result_truncated: true, task_result_blob: offloaded.textBlob });
  });

  it('leaves room for itself beside large results', async () => {
    const text = '語'.repeat(30_000);
    const result = Array.from({ length: 20 }, (_, i) => ({ kind: 'tool', text: `${i}${'y'.repeat(25_000)}` }));
    const command = await offloadCommand(TENANT, finish({ text, records: result }), blobs);
    expect(commandBytes(command)).toBeLessThan(COMMIT_MAX_BYTES);
  });

  it('is not changed where it is small', async () => {
    const command = finish({ text: 'done' });
    expect(await offloadCommand(TENANT, command, blobs)).toEqual(command);
    const step: StepCommand = { kind: 'step', commitId: 's', runId: 's:r1', epoch: 2, events: [], records: [] };
    expect(await offloadCommand(TENANT, step, blobs)).toEqual(step);
  });
});
