import type { Attachment, Principal, runnersPb } from '@margay/contracts';
import { sessionsPb } from '@margay/contracts';
import { ScriptedRunner } from '../spec/scripted-runner';
import { principalOf, SessionHarness } from '../spec/session-harness';

const harness = new SessionHarness();
const ada = principalOf('default', 'user:ada', 'member');
const bob = principalOf('default', 'user:bob', 'member');
const TEXT = Buffer.from('# Notes\n');

beforeAll(() => harness.start({ MARGAY_PROJECTS: JSON.stringify({ shop: { path: '/tmp' } }) }), 600_000);
afterAll(() => harness.stop());

async function sessionOf(principal: Principal): Promise<string> {
  const request = sessionsPb.CreateSessionRequest.fromPartial({});
  return (await harness.sessions.createSession(request, { principal })).sessionId;
}

async function add(
  sessionId: string,
  more: Partial<sessionsPb.AddAttachmentRequest> = {},
  principal = ada,
): Promise<Attachment> {
  const file = { sessionId, filename: 'notes.md', contentType: '', content: TEXT, model: '', ...more };
  return JSON.parse((await harness.sessions.addAttachment(file, { principal })).attachmentJson) as Attachment;
}

async function query(sessionId: string, attachments: unknown[], principal = ada): Promise<unknown[]> {
  const fields = { sessionId, text: 'read it', attachmentsJson: JSON.stringify(attachments) };
  await harness.sessions.acceptRun(sessionsPb.AcceptRunRequest.fromPartial(fields), { principal });
  const events: { type: string; payload: { attachments?: unknown[] } }[] = [];
  const all = sessionsPb.ReadCommitsRequest.fromPartial({ sessionId });
  for await (const { commits } of harness.sessions.readCommits(all, { principal }))
    for (const { frames } of commits) events.push(...frames.map(({ json }) => JSON.parse(json)));
  return events.findLast(({ type }) => type === 'user')?.payload.attachments ?? [];
}

const assigned = new Map<string, runnersPb.Assign>();

async function grantOf(runner: ScriptedRunner, sessionId: string): Promise<runnersPb.Assign> {
  const assign = assigned.get(sessionId) ?? (await runner.assignOf(sessionId));
  assigned.set(sessionId, assign);
  return assign;
}

describe('attached files', () => {
  it('are stored, answered as records, and shown on the message that names them', async () => {
    const sessionId = await sessionOf(ada);
    const record = await add(sessionId);
    expect(record).toMatchObject({
      id: expect.stringMatching(/^[0-9a-f]{32}$/),
      filename: 'notes.md',
      stored_name: `${record.id.slice(0, 8)}-notes.md`,
      content_type: 'text/markdown',
      size_bytes: TEXT.length,
      parsed: true,
    });
    expect(await query(sessionId, [record, { id: record.id }])).toEqual([record]);
    const chunks: Buffer[] = [];
    const blob = { sessionId, blobId: record.content_blob.id, offset: 0, length: 0 };
    for await (const { chunk } of harness.sessions.readBlob(blob, { principal: ada })) chunks.push(Buffer.from(chunk));
    expect(Buffer.concat(chunks)).toEqual(TEXT);
  });

  it('are believed the id only', async () => {
    const sessionId = await sessionOf(ada);
    const record = await add(sessionId);
    const forged = { ...record, stored_name: '../../x', content_blob: { id: 'f'.repeat(64), bytes: 1, sha256: 'f' } };
    expect(await query(sessionId, [forged])).toEqual([record]);
  });

  it.each([[{}], ['text'], [null], [{ id: 'f'.repeat(32) }], [{ id: '../x' }]])(
    'that nobody uploaded are refused: %j',
    async (attachment) => {
      const sessionId = await sessionOf(ada);
      const refused = query(sessionId, [attachment]);
      await expect(refused).rejects.toMatchObject({ code: 'INVALID_ARGUMENT', reason: 'attachment_not_found' });
      expect(await harness.state(sessionId)).toMatchObject({ running: false });
    },
  );

  it('of others are refused, also by id; own ones of another session are taken', async () => {
    const record = await add(await sessionOf(ada));
    const refused = query(await sessionOf(bob), [record], bob);
    await expect(refused).rejects.toMatchObject({ reason: 'attachment_not_found' });
    expect(await query(await sessionOf(ada), [record])).toEqual([record]);
  });

  it('cannot be added to sessions of others, unknown or terminated ones', async () => {
    const sessionId = await sessionOf(ada);
    await expect(add(sessionId, {}, bob)).rejects.toMatchObject({ reason: 'session_not_found' });
    await expect(add('f'.repeat(32))).rejects.toMatchObject({ reason: 'session_not_found' });
    await harness.sessions.terminateSession({ sessionId }, { principal: ada });
    await expect(add(sessionId)).rejects.toMatchObject({ reason: 'session_terminated' });
  });

  it.each([
    ['of an unsupported type', 'unsupported_type', { filename: 'a.exe' }],
    ['that are images', 'image_unsupported', { filename: 'a.png' }],
    ['said to be images', 'image_unsupported', { filename: 'a', contentType: 'image/webp', model: 'some/model' }],
    ['without a name', 'bad_request', { filename: '' }],
    ['above 7 MiB', 'too_large', { content: Buffer.alloc(7 * 1024 * 1024 + 1) }],
  ])('%s are refused as %s', async (_, reason, file) => {
    const refused = add(await sessionOf(ada), file);
    await expect(refused).rejects.toMatchObject({ code: 'INVALID_ARGUMENT', reason });
  });

  it('are read piece by piece under the grant of a run of their session, and of no other', async () => {
    const runner = new ScriptedRunner(harness.runners, 'runner-of-attachments', harness.pool);
    try {
      const [own, other] = [await sessionOf(ada), await sessionOf(ada)];
      const { content_blob: blob } = await add(own, { content: Buffer.from('only here') });
      await query(own, []);
      await query(other, []);
      const read = async (sessionId: string, offset: number, length: number) => {
        const { grant } = await grantOf(runner, sessionId);
        const { content } = await harness.runners.readAttachment({ blobId: blob.id, offset, length }, { grant });
        return content.toString();
      };
      expect(await read(own, 5, 100)).toBe('here');
      await expect(read(other, 0, 4)).rejects.toMatchObject({ reason: 'blob_not_found' });
    } finally {
      runner.detach();
    }
  });

  it('stay for a retry of the turn, and for a fork', async () => {
    const sessionId = await sessionOf(ada);
    const record = await add(sessionId);
    await query(sessionId, [record]);
    await harness.sessions.cancelRun({ sessionId, idempotencyKey: '' }, { principal: ada });
    const request = sessionsPb.ForkSessionRequest.fromPartial({ sessionId });
    const { sessionId: fork } = await harness.sessions.forkSession(request, { principal: ada });
    const retry = sessionsPb.RecoverSessionRequest.fromPartial({ sessionId: fork, action: 'retry' });
    await harness.sessions.recoverSession(retry, { principal: ada });
    await harness.sessions.cancelRun({ sessionId: fork, idempotencyKey: '' }, { principal: ada });
    expect(await query(fork, [record])).toEqual([record]);
  });
});

describe('files for completion', () => {
  const list = (fields: Partial<sessionsPb.ListFilesRequest>, principal = ada) =>
    harness.sessions.listFiles(sessionsPb.ListFilesRequest.fromPartial({ limit: 10, ...fields }), { principal });

  it('are those of the workspace and the names of attached files', async () => {
    const sessionId = await sessionOf(ada);
    await add(sessionId, { filename: 'Notes on a.md' });
    await add(sessionId, { filename: 'other.md' });
    const found = await list({ sessionId, query: 'NOTES' });
    expect(found).toMatchObject({ files: ['src/a.ts'], attachments: ['Notes on a.md'], stale: false });
    expect(harness.listed.at(-1)).toMatchObject({ sessionId, workspaceJson: '{"kind":"own"}', query: 'NOTES' });
  });

  it('are asked for of the project, by name', async () => {
    await list({ project: 'shop' });
    expect(harness.listed.at(-1)).toMatchObject({ sessionId: '', workspaceJson: '{"kind":"path","path":"/tmp"}' });
  });

  it('are none of unknown projects, and no session of others is told of', async () => {
    expect(await list({ project: 'nope' })).toMatchObject({ files: [], attachments: [] });
    expect(await list({})).toMatchObject({ files: [] });
    await expect(list({ sessionId: await sessionOf(bob) })).rejects.toMatchObject({ reason: 'session_not_found' });
  });
});
