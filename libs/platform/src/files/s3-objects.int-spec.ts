import { randomBytes, randomUUID } from 'node:crypto';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { FakeS3, realBucket, type RealBucket } from '@margay/testing';
import { BlobConfig } from './blob-config';
import type { Chunks, ObjectStore } from './object-store';
import { openObjects } from './open-objects';
import type { S3Objects } from './s3-objects';

const MIB = 1024 ** 2;
// Tens of megabytes go through; nothing here is about how fast.
jest.setTimeout(300_000);

async function open(at: RealBucket, more: Record<string, string> = {}): Promise<S3Objects> {
  const objects = await openObjects(
    BlobConfig.parse({
      MARGAY_BLOB_DRIVER: 's3',
      MARGAY_S3_ENDPOINT: at.endpoint,
      MARGAY_S3_BUCKET: at.bucket,
      MARGAY_S3_ACCESS_KEY_ID: at.accessKeyId,
      MARGAY_S3_SECRET_ACCESS_KEY: at.secretAccessKey,
      ...more,
    }),
  );
  if (!objects) throw new Error('a bucket expected');
  return objects;
}

async function* pieces(bytes: Buffer, size = 100_000): Chunks {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

async function* breakingOff(bytes: Buffer): Chunks {
  yield* pieces(bytes);
  throw new Error('the sender is gone');
}

async function whole(chunks: Chunks): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  for await (const chunk of chunks) parts.push(chunk);
  return Buffer.concat(parts);
}

/** What every object store keeps. */
function describeObjects(name: string, bucket: () => RealBucket, refused: Partial<RealBucket>): void {
  describe(`the object store ${name}`, () => {
    let objects: ObjectStore;
    const key = (): string => `spec/a%2Fb/${randomUUID()}`;
    beforeAll(async () => {
      objects = await open(bucket());
    });
    afterAll(() => objects.close());

    it.each([0, 1, 300_000, 8 * MIB, 20 * MIB + 7])(
      'gives back %d bytes',
      async (size) => {
        const [bytes, at] = [randomBytes(size), key()];
        await objects.write(at, pieces(bytes));
        expect((await whole(objects.read(at, 0, size))).equals(bytes)).toBe(true);
        await objects.remove(at);
      },
      60_000,
    );

    it('gives back ranges', async () => {
      const [bytes, at] = [randomBytes(1_000), key()];
      await objects.write(at, pieces(bytes));
      for (const [start, end] of [
        [0, 1],
        [999, 1_000],
        [10, 990],
        [5, 5],
      ] as const)
        expect(await whole(objects.read(at, start, end))).toEqual(bytes.subarray(start, end));
    });

    it.each([100_000, 20 * MIB])(
      'shows nothing of %d bytes whose source breaks off',
      async (size) => {
        const at = key();
        await expect(objects.write(at, breakingOff(randomBytes(size)))).rejects.toThrow('the sender is gone');
        await expect(whole(objects.read(at, 0, 1))).rejects.toMatchObject({ reason: 'object_missing' });
      },
      60_000,
    );

    it('removes an object once, and what is not there without a word', async () => {
      const at = key();
      await objects.write(at, pieces(Buffer.from('text')));
      for (let i = 0; i < 2; i++) await objects.remove(at);
      await objects.abandon(at);
      await expect(whole(objects.read(at, 0, 4))).rejects.toMatchObject({
        code: 'NOT_FOUND',
        reason: 'object_missing',
      });
    });

    it('says which bucket is missing', async () => {
      const lost = await open({ ...bucket(), bucket: 'no-such-bucket' });
      const failure = {
        reason: 'blob_bucket_missing',
        message: expect.stringMatching(/no-such-bucket.*MARGAY_S3_BUCKET/) as string,
      };
      await expect(lost.write(key(), pieces(Buffer.from('text')))).rejects.toMatchObject(failure);
      await expect(whole(lost.read(key(), 0, 4))).rejects.toMatchObject(failure);
      lost.close();
    });

    it('says that the key is refused, and not which', async () => {
      const foreign = await open({ ...bucket(), ...refused });
      const failure: Error = await foreign.write(key(), pieces(Buffer.from('text'))).then(
        () => new Error('it was not refused'),
        (error: Error) => error,
      );
      expect(failure).toMatchObject({ code: 'UNAVAILABLE', reason: 'blob_store_denied' });
      expect(failure.message).toContain('MARGAY_S3_SECRET_ACCESS_KEY');
      for (const secret of Object.values(refused)) expect(failure.message).not.toContain(secret);
      foreign.close();
    });
  });
}

const fake = new FakeS3();
const fakeBucket = (): RealBucket => ({
  endpoint: fake.url,
  bucket: fake.bucket,
  accessKeyId: fake.accessKeyId,
  secretAccessKey: 'spec-secret',
});
beforeAll(() => fake.start());
afterAll(() => fake.stop());

// The fake compares no signatures.
describeObjects('of the fake', fakeBucket, { accessKeyId: 'somebody-else' });

const real = realBucket();
// The server is built with Go for a minute or more: `npm run test:s3` does that.
if (real) describeObjects('of a real server', () => real, { secretAccessKey: 'another-secret' });
else it.skip('the object store of a real server: run `npm run test:s3`', () => undefined);

describe('the object store in trouble', () => {
  let objects: S3Objects;
  beforeAll(async () => {
    objects = await open(fakeBucket());
  });
  afterAll(() => objects.close());
  beforeEach(() => {
    fake.refuse = () => undefined;
    fake.breaksAfter = undefined;
    fake.asked.length = 0;
  });

  it('tries again where the server is busy', async () => {
    let left = 2;
    fake.refuse = () => (left-- > 0 ? { status: 503, code: 'SlowDown' } : undefined);
    await objects.write('k', pieces(Buffer.from('text')));
    expect((await whole(objects.read('k', 0, 4))).toString()).toBe('text');
    expect(fake.asked.filter(({ method }) => method === 'PUT')).toHaveLength(3);
  });

  it('gives up parts where one of them is refused', async () => {
    fake.refuse = ({ query }) => (query.get('partNumber') === '2' ? { status: 403, code: 'AccessDenied' } : undefined);
    const refused = objects.write('parts', pieces(randomBytes(20 * MIB)));
    await expect(refused).rejects.toMatchObject({ reason: 'blob_store_denied' });
    expect([fake.uploads.size, fake.objects.has('parts')]).toEqual([0, false]);
    expect(fake.asked.some(({ method, query }) => method === 'DELETE' && query.has('uploadId'))).toBe(true);
  });

  it('removes parts that nobody finished, of this key alone', async () => {
    for (const key of ['left', 'left-too']) fake.uploads.set(key, { key, parts: new Map([[1, Buffer.from('half')]]) });
    await objects.abandon('left');
    expect([...fake.uploads.keys()]).toEqual(['left-too']);
    fake.uploads.clear();
  });

  it('leaves unfinished parts to the rules of the bucket where it may not list them', async () => {
    fake.objects.set('left', Buffer.from('text'));
    fake.refuse = ({ query }) => (query.has('uploads') ? { status: 403, code: 'AccessDenied' } : undefined);
    await objects.abandon('left');
    expect(fake.objects.has('left')).toBe(false);
  });

  it('fails where the connection breaks in the midst of an object', async () => {
    await objects.write('broken', pieces(randomBytes(MIB)));
    fake.breaksAfter = 1_000;
    await expect(whole(objects.read('broken', 0, MIB))).rejects.toMatchObject({ reason: 'blob_store_unavailable' });
  });

  it('serves others, however many read slowly', async () => {
    const bytes = randomBytes(20 * MIB);
    await objects.write('large', pieces(bytes));
    const readers = Array.from({ length: 60 }, () => objects.read('large', 0, bytes.length)[Symbol.asyncIterator]());
    await Promise.all(readers.map((reader) => reader.next()));
    await objects.write('other', pieces(Buffer.from('of somebody else')));
    expect(fake.objects.has('other')).toBe(true);
    await Promise.all(readers.map(async (reader) => reader.return?.()));
  });

  it('names the server that is not reached', async () => {
    const gone = new FakeS3();
    const { url } = await gone.start();
    await gone.stop();
    const lost = await open({ ...fakeBucket(), endpoint: url });
    const failure = {
      code: 'UNAVAILABLE',
      reason: 'blob_store_unavailable',
      message: expect.stringContaining(`${url} is not reached`) as string,
    };
    await expect(lost.write('k', pieces(Buffer.from('text')))).rejects.toMatchObject(failure);
    lost.close();
  });

  it('holds a bounded part of what it writes', async () => {
    const size = 40;
    let [made, ahead] = [0, 0];
    const stored = (): number => [...fake.uploads.values()].flatMap(({ parts }) => [...parts.values()]).length * 8;
    async function* many(): Chunks {
      for (; made < size; made += 1) {
        ahead = Math.max(ahead, made - stored());
        yield Buffer.alloc(MIB, made);
        await nextTurn();
      }
    }
    await objects.write('large', many());
    expect(fake.objects.get('large')).toHaveLength(size * MIB);
    // Two parts on their way, one being put together, and what a stream reads ahead.
    expect(ahead).toBeLessThanOrEqual(30);
    fake.objects.clear();
  });
});

describe('the environment of the object store', () => {
  const complete = {
    MARGAY_BLOB_DRIVER: 's3',
    MARGAY_S3_BUCKET: 'b',
    MARGAY_S3_ACCESS_KEY_ID: 'i',
    MARGAY_S3_SECRET_ACCESS_KEY: 's',
  } as const;

  it('is that of GridFS unless it says otherwise', async () => {
    expect(await openObjects(BlobConfig.parse({}))).toBeUndefined();
  });

  it.each(['MARGAY_S3_BUCKET', 'MARGAY_S3_ACCESS_KEY_ID', 'MARGAY_S3_SECRET_ACCESS_KEY'] as const)(
    'needs %s',
    async (name) => {
      const { [name]: _, ...rest } = complete;
      const refused = openObjects(BlobConfig.parse(rest));
      await expect(refused).rejects.toMatchObject({
        reason: 'bad_environment',
        message: expect.stringContaining(name) as string,
      });
    },
  );
});
