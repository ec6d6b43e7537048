import type { Attachment } from '@margay/contracts';
import type { OpenedRun } from '@margay/engine';
import { NotFoundError, UnavailableError } from '@margay/errors';
import { createLogger } from '@margay/platform';
import { AttachmentPlacer } from './attachment-placer';

const SIZE = 5 * 1024 * 1024;
const BLOB = 'a'.repeat(64);

let held: Map<string, number>;
let asked: { offset: number; bytes: number }[];
let failure: Error | undefined;
let isBroken: boolean;
let placer: AttachmentPlacer;

function attachment(name: string, bytes = SIZE): Attachment {
  const blob = { id: BLOB, bytes, sha256: BLOB };
  const told = { id: 'b'.repeat(32), filename: name, content_type: 'text/plain', uploaded_at: '', parsed: true };
  return { ...told, stored_name: name, size_bytes: bytes, content_blob: blob };
}

function learn(...turns: unknown[][]): void {
  const records = turns.map((attachments, c) => ({ c, record: { kind: 'user', runId: 'r', text: '', attachments } }));
  placer.learn({ records } as unknown as OpenedRun);
}

beforeEach(() => {
  held = new Map();
  asked = [];
  failure = undefined;
  isBroken = false;
  placer = new AttachmentPlacer({
    grant: () => 'grant',
    logger: createLogger({ service: 'spec', level: 'off' }),
    runners: {
      readAttachment: async ({ offset, length }) => {
        asked.push({ offset, bytes: length });
        return { content: Buffer.alloc(Math.min(length, SIZE - offset)) };
      },
    },
    executor: {
      placeAttachment: async ({ name, totalBytes, offset, content }) => {
        if (failure) throw failure;
        const size = isBroken ? 0 : offset + content.length;
        held.set(name, Math.max(size, held.get(name) ?? 0));
        return { done: held.get(name) === totalBytes, nextOffset: held.get(name) ?? 0 };
      },
    },
  });
});

describe('what people attached', () => {
  it('of the whole conversation is brought in pieces, once', async () => {
    learn([attachment('a')], [], [{ id: 'of another kind' }, attachment('b')]);
    await Promise.all([placer.place(), placer.place()]);
    await placer.place();
    expect([...held]).toEqual([
      ['a', SIZE],
      ['b', SIZE],
    ]);
    expect(asked.map(({ offset }) => offset / 1024 ** 2)).toEqual([0, 2, 4, 0, 2, 4]);
  });

  it('is not read where the sandbox has it, or has a part of it', async () => {
    learn([attachment('a'), attachment('b')]);
    held.set('a', SIZE).set('b', 3 * 1024 * 1024);
    await placer.place();
    expect(asked.map(({ offset }) => offset / 1024 ** 2)).toEqual([3]);
  });

  it('is brought anew into another sandbox', async () => {
    learn([attachment('a')]);
    await placer.place();
    held.clear();
    placer.forget();
    await placer.place();
    expect(held.get('a')).toBe(SIZE);
  });

  it('is tried again after a failure, as a call would be', async () => {
    learn([attachment('a')]);
    failure = new UnavailableError('unavailable', 'away');
    await expect(placer.place()).rejects.toBe(failure);
    failure = undefined;
    await placer.place();
    expect(held.get('a')).toBe(SIZE);
  });

  it('does not keep the run from going on where there is no place for it, or it is gone', async () => {
    learn([attachment('a')]);
    failure = new NotFoundError('blob_not_found', 'gone');
    await placer.place();
    expect(held.size).toBe(0);
  });

  it('fails where it never arrives whole', async () => {
    learn([attachment('a')]);
    isBroken = true;
    await expect(placer.place()).rejects.toMatchObject({ reason: 'attachment_broken' });
  });
});
