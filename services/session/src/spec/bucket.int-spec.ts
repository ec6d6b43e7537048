import { sessionsPb } from '@margay/contracts';
import { FakeS3 } from '@margay/testing';
import { SessionHarness } from './session-harness';

const fake = new FakeS3();
const harness = new SessionHarness();
const { owner: principal } = harness;

beforeAll(async () => {
  await fake.start();
  await harness.start({
    MARGAY_BLOB_DRIVER: 's3',
    MARGAY_S3_ENDPOINT: fake.url,
    MARGAY_S3_BUCKET: fake.bucket,
    MARGAY_S3_ACCESS_KEY_ID: fake.accessKeyId,
    MARGAY_S3_SECRET_ACCESS_KEY: 'spec-secret',
  });
}, 600_000);
afterAll(async () => {
  await harness.stop();
  await fake.stop();
});
beforeEach(() => {
  fake.refuse = () => undefined;
});

async function createSession(): Promise<string> {
  const request = sessionsPb.CreateSessionRequest.fromPartial({});
  return (await harness.sessions.createSession(request, { principal })).sessionId;
}

const accept = (sessionId: string, text: string) =>
  harness.sessions.acceptRun(sessionsPb.AcceptRunRequest.fromPartial({ sessionId, text }), { principal });

async function read(sessionId: string, blobId: string): Promise<string> {
  const chunks: Uint8Array[] = [];
  const request = sessionsPb.ReadBlobRequest.fromPartial({ sessionId, blobId });
  for await (const { chunk } of harness.sessions.readBlob(request, { principal })) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}

describe('a session whose texts lie in a bucket', () => {
  const text = `a long question ${'that goes on and on '.repeat(10_000)}`;

  it('keeps them there and reads them from there', async () => {
    const sessionId = await createSession();
    await accept(sessionId, text);
    const [[key, bytes] = []] = fake.objects;
    expect([key?.split('/').slice(1, 3), bytes?.toString()]).toEqual([['default', 'fs'], text]);
    const [file] = await (await harness.db()).collection('fs.files').find({}).toArray();
    expect(await read(sessionId, String(file?.['filename']).split('/')[1] ?? '')).toBe(text);
    expect(await (await harness.db()).collection('fs.chunks').countDocuments()).toBe(0);
  });

  it('says that the bucket refuses its key, and takes what needs none', async () => {
    const sessionId = await createSession();
    fake.refuse = () => ({ status: 403, code: 'AccessDenied' });
    await expect(accept(sessionId, `${text} and differs`)).rejects.toMatchObject({
      code: 'UNAVAILABLE',
      reason: 'blob_store_denied',
    });
    expect(await accept(sessionId, 'a short question')).toMatchObject({ replayed: false });
  });
});
