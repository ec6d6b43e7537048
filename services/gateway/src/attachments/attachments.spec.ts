import { GatewayHarness } from '../spec/gateway-harness';

describe('POST attachments', () => {
  const harness = new GatewayHarness();
  let id: string;

  beforeAll(() => harness.start());
  beforeEach(async () => {
    id = await harness.session.createSession();
  });
  afterAll(() => harness.stop());

  async function upload(form: FormData, to = id) {
    const sent = new Request(harness.url, { method: 'POST', body: form });
    const response = await fetch(`${harness.url}/api/sessions/${to}/attachments`, {
      method: 'POST',
      headers: { 'X-API-KEY': harness.key.text, 'content-type': sent.headers.get('content-type') ?? '' },
      body: await sent.arrayBuffer(),
    });
    return {
      status: response.status,
      headers: response.headers,
      body: (await response.json()) as Record<string, unknown>,
    };
  }

  function form(...files: [string, string | Uint8Array<ArrayBuffer>, string][]): FormData {
    const made = new FormData();
    for (const [name, content, field] of files) made.append(field, new File([content], name, { type: 'text/plain' }));
    return made;
  }

  const sent = () =>
    harness.session.calls.filter(({ method }) => method === 'addAttachment').map(({ request }) => request);

  it('takes several files under both names of the field, byte for byte', async () => {
    const bytes = new Uint8Array([0, 13, 10, 255, 45, 45]);
    const { status, body } = await upload(form(['a.txt', 'one\r\n', 'files'], ['b ü.txt', bytes, 'file']));
    expect(status).toBe(200);
    expect(body).toMatchObject({
      attachments: [
        { filename: 'a.txt', size_bytes: 5 },
        { filename: 'b ü.txt', size_bytes: 6 },
      ],
    });
    expect(Buffer.from((sent().at(-1) as { content: Buffer }).content)).toEqual(Buffer.from(bytes));
  });

  it('passes the model on, from the form or the query', async () => {
    const made = form(['a.txt', 'x', 'files']);
    made.append('model', 'some/model');
    await upload(made);
    expect(sent().at(-1)).toMatchObject({ sessionId: id, model: 'some/model' });
    await upload(form(['a.txt', 'x', 'files']), `${id}`);
    expect(sent().at(-1)).toMatchObject({ model: '' });
  });

  it.each([
    ['no file', () => new FormData()],
    ['a file under another name', () => form(['a.txt', 'x', 'data'])],
    [
      'more than twenty files',
      () => form(...Array.from({ length: 21 }, (): [string, string, string] => ['a', 'x', 'file'])),
    ],
  ])('refuses %s as a message', async (_, made) => {
    const before = sent().length;
    expect(await upload(made())).toMatchObject({ status: 400, body: { message: expect.stringContaining("'files'") } });
    expect(sent()).toHaveLength(before);
  });

  it('tells what session refuses, as a message', async () => {
    const { status, body, headers } = await upload(form(['a.exe', 'x', 'files']));
    expect([status, headers.get('x-margay-reason')]).toEqual([400, 'unsupported_type']);
    expect(body).toEqual({ message: "'a.exe' has a type" });
  });

  it.each(['f'.repeat(32), 'nonsense'])('answers 404 with the sentence of the reference for %s', async (unknown) => {
    const { status, body } = await upload(form(['a.txt', 'x', 'files']), unknown);
    expect([status, body]).toEqual([404, { message: 'Session not found.' }]);
  });

  it('refuses bodies that are no multipart form, and broken ones', async () => {
    const path = `/api/sessions/${id}/attachments`;
    for (const [type, rawBody] of [
      ['application/json', '{"files":[]}'],
      ['multipart/form-data', 'x'],
      ['multipart/form-data; boundary=x', '--y'],
    ] as const) {
      const answer = await harness.request('POST', path, { rawBody, headers: { 'Content-Type': type } });
      expect([answer.status, Object.keys(answer.body as object)]).toEqual([400, ['message']]);
    }
  });

  it('reads no more than 32 MiB, and of other routes no more than their bodies may have', async () => {
    const headers = { 'Content-Type': 'multipart/form-data; boundary=x' };
    for (const [route, bytes] of [
      ['attachments', 32 * 1024 * 1024 + 1],
      ['query', 1_000_001],
    ] as const) {
      const path = `/api/sessions/${id}/${route}`;
      expect((await harness.request('POST', path, { rawBody: 'x'.repeat(bytes), headers })).status).toBe(413);
    }
  });
});
