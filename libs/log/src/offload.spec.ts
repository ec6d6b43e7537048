import type { EventInput } from '@margay/contracts';
import type { StepCommand } from './command';
import { MemoryBlobStore } from './memory-blobs';
import { inlineBlobs, offload } from './offload';
import type { OpenRecord } from './record';
import { COMMIT_MAX_BYTES, commandBytes } from './size';

const TENANT = 'tenant';
let blobs: MemoryBlobStore;
beforeEach(() => (blobs = new MemoryBlobStore()));

function resultEvent(result: string, fields: object = {}): EventInput {
  const payload = {
    tool_id: 't',
    operation: 'o',
    tool_input: {},
    result,
    success: true,
    summary: '',
    agent_id: 'a',
    model: 'm',
  };
  return { type: 'tool_result', payload: { ...payload, ...fields } };
}

async function offloaded(events: EventInput[], records: OpenRecord[] = []): Promise<StepCommand> {
  const fitted = await offload(TENANT, { events, records }, blobs);
  return { kind: 'step', commitId: 'c', runId: 'r', epoch: 1, ...fitted };
}

const payloadOf = (event: EventInput | undefined) => event?.payload as Record<string, unknown>;
const read = async (id: unknown) => Buffer.from(await blobs.get(TENANT, String(id))).toString('utf8');

describe('offload', () => {
  it('leaves small commits as they are', async () => {
    const bundle = { events: [resultEvent('small')], records: [{ kind: 'tool', text: 'small' }] };
    expect(await offload(TENANT, bundle, blobs)).toBe(bundle);
  });

  it('leaves an event field of 100,000 characters whole', async () => {
    const whole = 'x'.repeat(100_000);
    const { events } = await offloaded([resultEvent(whole)]);
    expect(payloadOf(events[0])).toEqual(payloadOf(resultEvent(whole)));
  });

  it('shows the first 50,000 and last 10,000 characters of a longer field beside its blob', async () => {
    const whole = `${'a'.repeat(50_000)}${'b'.repeat(40_001)}${'c'.repeat(10_000)}`;
    const payload = payloadOf((await offloaded([resultEvent(whole)])).events[0]);
    expect(payload['result']).toBe(`${'a'.repeat(50_000)}${'c'.repeat(10_000)}`);
    expect(payload['result_truncated']).toBe(true);
    expect(payload['result_blob']).toEqual({ id: expect.any(String), bytes: 100_001, sha256: expect.any(String) });
    expect(await read((payload['result_blob'] as { id: string }).id)).toBe(whole);
  });

  it('cuts the JSON text of a field that is no string', async () => {
    const tool_input = { content: 'x'.repeat(150_000) };
    const payload = payloadOf((await offloaded([resultEvent('', { tool_input })])).events[0]);
    expect(payload['tool_input']).toHaveLength(60_000);
    expect(JSON.parse(await read((payload['tool_input_blob'] as { id: string }).id))).toEqual(tool_input);
  });

  it('cuts no pair of surrogates in two', async () => {
    const payload = payloadOf((await offloaded([resultEvent(`x${'🐆'.repeat(60_000)}`)])).events[0]);
    expect((payload['result'] as string).isWellFormed()).toBe(true);
  });

  it('moves private texts above 32 KB of UTF-8 into blobs, and brings them back', async () => {
    const texts = ['x'.repeat(32 * 1024), 'x'.repeat(32 * 1024 + 1), 'ž'.repeat(16 * 1024 + 1)];
    const record = { kind: 'tool', texts, deep: { text: texts[1] } };
    const { records } = await offloaded([], [record]);
    const blob = { $blob: expect.any(String) };
    expect(records).toEqual([{ kind: 'tool', texts: [texts[0], blob, blob], deep: { text: blob } }]);
    expect(await inlineBlobs(TENANT, records[0], blobs)).toEqual(record);
  });

  it('leaves a private text that an event holds whole: it is stored once', async () => {
    const text = 'x'.repeat(90_000);
    const { records } = await offloaded([resultEvent(text)], [{ kind: 'tool', text }]);
    expect(records).toEqual([{ kind: 'tool', text }]);
  });

  it('stores the exact text of a result whose event is cut', async () => {
    const text = 'x'.repeat(300_000);
    const { records } = await offloaded([resultEvent(text)], [{ kind: 'tool', text }]);
    expect(await inlineBlobs(TENANT, records[0], blobs)).toEqual({ kind: 'tool', text });
  });

  it.each([
    ['four results of 99,000 characters, each held by a record too', 4, 99_000, 'x'],
    ['twelve large results', 12, 99_000, 'x'],
    ['results in a script of three bytes a character', 4, 99_000, '山'],
    ['results full of quotes', 4, 99_000, '"'],
    ['a hundred medium results', 100, 20_000, 'x'],
  ])('fits %s into 512 KB', async (_title, count, length, character) => {
    const texts = Array.from({ length: count }, (_, index) => `${index}${character.repeat(length)}`);
    const records = texts.map((text) => ({ kind: 'tool', text }));
    const command = await offloaded(
      texts.map((text) => resultEvent(text)),
      records,
    );
    expect(commandBytes(command)).toBeLessThanOrEqual(COMMIT_MAX_BYTES);
    expect(await Promise.all(command.records.map((record) => inlineBlobs(TENANT, record, blobs)))).toEqual(records);
    for (const [index, event] of command.events.entries()) {
      const payload = payloadOf(event);
      const blob = payload['result_blob'] as { id: string } | undefined;
      expect(blob ? await read(blob.id) : payload['result']).toBe(texts[index]);
    }
  });

  it.each([
    { kind: 'tool', result: { $blob: 'f'.repeat(64) } },
    { kind: 'tool', result: { $$blob: { $blob: 'x' } } },
    { kind: 'tool', result: { $blob: 'x' }, text: 'y'.repeat(40_000) },
  ])('keeps data that looks like a reference to a blob (%#)', async (record) => {
    const { records } = await offloaded([], [record]);
    expect(await inlineBlobs(TENANT, records[0], blobs)).toEqual(record);
  });

  it("follows no reference in a person's attachments", async () => {
    const record = { kind: 'user', runId: 'r', text: '', attachments: [{ $blob: 'f'.repeat(64) }] };
    expect(await inlineBlobs(TENANT, record, blobs)).toEqual(record);
  });
});
