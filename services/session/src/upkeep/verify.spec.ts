import { emptyHead, fold, hashOf, tipOf, type Command, type CommitDocument, type Tip } from '@margay/log';
import { acceptCommand, createCommand, hashed, messageCommand } from '@margay/testing';
import { fromStored, toStored, type StoredCommit } from '../commits/commit.mapper';
import { verifySession, type Verification } from './verify';

const SESSION = 'ab'.repeat(16);
const RUN_ID = `${SESSION}:r1`;
const BLOB = 'c1'.repeat(32);
const START_MICROS = 1_700_000_000_000_000;

const batches: Command[][] = [
  [createCommand({ tag: 'tag' })],
  [acceptCommand('a question with "quotes", \n lines and ünïcödé')],
  [{ kind: 'claim', commitId: 'claim', runId: RUN_ID, epoch: 1, owner: 'runner' }],
  [messageCommand('first'), messageCommand('second')],
  [
    {
      kind: 'step',
      commitId: 'step',
      runId: RUN_ID,
      epoch: 2,
      events: [{ type: 'assistant', payload: { text: 'x…', text_blob: { id: BLOB, bytes: 9, sha256: BLOB } } }],
      records: [{ kind: 'note', text: { $blob: BLOB } }],
    },
  ],
  [{ kind: 'cancel', commitId: 'cancel' }],
];

/** A session with each kind of content, as it lies in the store. */
const log: readonly StoredCommit[] = (() => {
  let tip: Tip = { head: emptyHead(SESSION), hash: '' };
  return batches.map((commands, index) => {
    const { document } = fold(tip, commands.map(hashed), START_MICROS + index * 1_000_000);
    if (!document) throw new Error('document expected');
    tip = tipOf(document);
    return toStored(document);
  });
})();

interface World {
  row?: number;
  late?: StoredCommit[];
  blobFault?: string;
  signal?: AbortSignal;
}

function verify(commits: readonly StoredCommit[], { row = 0, late = [], blobFault, signal }: World = {}) {
  const store = {
    lowerBound: async () => row,
    async *stored() {
      yield* commits;
    },
    storedNumber: async (_: string, c: number) => late.find(({ _id }) => Number(_id.split('.')[1]) === c),
  };
  const blobs = { faultOf: async () => blobFault };
  return verifySession({ store, blobs, ...(signal ? { signal } : {}) }, SESSION);
}

const replaced = (index: number, commit: StoredCommit): StoredCommit[] => log.with(index, commit);
const badOf = ({ fault }: Verification): number | undefined => fault?.c;

/** The same value with one bit of one byte changed, for each byte of it, wherever it lies. */
function* flips(value: unknown): Iterable<unknown> {
  if (typeof value === 'string') {
    for (let at = 0; at < value.length; at++)
      for (const bit of [1, 0x20])
        yield value.slice(0, at) + String.fromCharCode(value.charCodeAt(at) ^ bit) + value.slice(at + 1);
  } else if (Buffer.isBuffer(value)) {
    for (const at of value.keys()) yield Buffer.from(value.map((byte, index) => (index === at ? byte ^ 1 : byte)));
  } else if (typeof value === 'number') {
    yield* [value + 1, value - 1, -value, String(value)];
  } else if (Array.isArray(value)) {
    for (const [index, item] of value.entries()) for (const flipped of flips(item)) yield value.with(index, flipped);
    for (const index of value.keys()) yield value.toSpliced(index, 1);
    yield [...value, ...value];
    if (value.length > 1) yield value.toReversed();
  } else if (typeof value === 'object' && value !== null) {
    for (const [key, field] of Object.entries(value))
      for (const flipped of flips(field)) yield { ...value, [key]: flipped };
  }
}

describe('verification of the stored form', () => {
  it('finds nothing wrong with what was written', async () => {
    expect(await verify(log, { row: 6 })).toMatchObject({
      commits: 6,
      headHash: expect.stringMatching(/^[0-9a-f]{64}$/),
    });
    expect(badOf(await verify(log))).toBeUndefined();
    expect(log.some(({ blobs }) => blobs?.includes(BLOB))).toBe(true);
  });

  it.each(log.map((_, index) => index))('finds every changed bit of commit %# by its number', async (index) => {
    const { effectsDueAt: _mutable, ...fields } = log[index] as StoredCommit;
    const missed: unknown[] = [];
    let tried = 0;
    for (const [field, value] of Object.entries(fields))
      for (const changed of flips(value)) {
        tried += 1;
        const commit = { ...log[index], [field]: changed } as StoredCommit;
        if (badOf(await verify(replaced(index, commit).slice(0, index + 1))) === undefined)
          missed.push([field, changed]);
      }
    expect(missed).toEqual([]);
    expect(tried).toBeGreaterThan(500);
  });

  it('finds every field that is gone, except the mark of effects that are done', async () => {
    for (const [index, commit] of log.entries())
      for (const field of Object.keys(commit) as (keyof StoredCommit)[]) {
        // Every document has an id, and commits of older versions name no blobs.
        if (field === '_id' || field === 'effectsDueAt' || field === 'blobs') continue;
        const { [field]: _gone, ...rest } = commit;
        expect([field, badOf(await verify(replaced(index, rest as StoredCommit)))]).toEqual([field, index + 1]);
      }
  });

  it('finds each commit that is missing, stands twice, or has changed places with another', async () => {
    for (const index of log.keys()) {
      expect(badOf(await verify(log.toSpliced(index, 1), { row: 6 }))).toBe(index + 1);
      const again = { ...log[index], _id: log[0]?._id.replace(/\d$/, '7') } as StoredCommit;
      expect(badOf(await verify([...log, again]))).toBe(7);
      for (let other = index + 1; other < log.length; other++) {
        const [one, two] = [log[index], log[other]] as [StoredCommit, StoredCommit];
        const swapped = log.with(index, { ...two, _id: one._id }).with(other, { ...one, _id: two._id });
        expect(badOf(await verify(swapped))).toBe(index + 1);
      }
    }
    expect(badOf(await verify([], { row: 6 }))).toBe(1);
  });

  it('finds a commit that was rewritten with a right hash by the one behind it', async () => {
    for (const index of log.keys()) {
      const document = fromStored(log[index] as StoredCommit);
      const changed: CommitDocument = { ...document, head: { ...document.head, title: 'another' } };
      const before = index === 0 ? '' : fromStored(log[index - 1] as StoredCommit).hash;
      const forged = toStored({ ...changed, hash: hashOf(before, changed) });
      // Of the last one nothing in the log tells: its hash has to be known from elsewhere.
      if (index === log.length - 1) expect((await verify(replaced(index, forged))).headHash).not.toBe(document.hash);
      else expect(badOf(await verify(replaced(index, forged)))).toBe(index + 2);
    }
  });

  it('refuses a version that it does not know, and says what to do', async () => {
    const { fault } = await verify(replaced(2, { ...log[2], v: 2 as 1 } as StoredCommit));
    expect(fault).toEqual({ c: 3, problem: expect.stringContaining('upgrade it') });
    expect(badOf(await verify(replaced(2, { ...log[2], v: 0 as 1 } as StoredCommit)))).toBe(3);
  });

  it('names the commit whose blob is missing or was changed', async () => {
    expect((await verify(log, { blobFault: 'blob x is missing' })).fault).toEqual({
      c: 5,
      problem: 'blob x is missing',
    });
  });

  it('takes no commit for missing that a page skipped while it was being written', async () => {
    const late = [log[3] as StoredCommit];
    expect(badOf(await verify(log.toSpliced(3, 1), { late }))).toBeUndefined();
  });

  it('ends when the caller leaves', async () => {
    await expect(verify(log, { signal: AbortSignal.abort(new Error('gone')) })).rejects.toThrow('gone');
  });
});
