import { answer } from '@margay/testing';
import { PlatformHarness } from './harness';

jest.setTimeout(180_000);

const margay = new PlatformHarness({ mode: 'combined' });
let idle: string;

beforeAll(async () => {
  await margay.start();
  margay.script(() => answer('fine'));
  ({ id: idle } = await margay.client.sessions.create({}));
}, 600_000);
afterAll(() => margay.stop(), 180_000);

const CREATE = '/api/sessions';
const QUERY = '/api/sessions/{id}/query';
const MESSAGE = '/api/sessions/{id}/message';
const LARGE = JSON.stringify('x'.repeat(600_000));
const DEEP = '['.repeat(20_000) + ']'.repeat(20_000);
const NO_TEXT = ['5', 'true', '[]', '["a"]', '{}', '{"__proto__":"a"}', '{"$gt":""}', LARGE, DEEP];
const NO_LIST = ['5', '"a"', '{}', '[5]', '[null]', LARGE, DEEP];
const NO_CONTEXT = ['5', '"a"', '[]', LARGE, DEEP];

const body = (path: string, field: string, values: string[]): [string, string, string[]] => [path, field, values];

/** Every field of every body, and what it does not take. */
const FIELDS = [
  body(CREATE, 'session_tag', NO_TEXT),
  body(MESSAGE, 'text', ['null', '""', '" \\n"', ...NO_TEXT]),
  body(QUERY, 'query', ['null', '""', '" \\n"', ...NO_TEXT]),
  body(QUERY, 'skill', NO_TEXT),
  body(QUERY, 'skill_args', NO_TEXT),
  ...[CREATE, QUERY].flatMap((path) => [
    body(path, 'project', NO_TEXT),
    body(path, 'mode', ['"fast"', '""', ...NO_TEXT]),
    body(path, 'cwd', ['"relative"', '"/no/such/folder"', '"a\\u0000b"', ...NO_TEXT]),
    body(path, 'attachments', NO_LIST),
    body(path, 'context', NO_CONTEXT),
    ...['model', 'project', 'cwd', 'skill'].map((field) => body(path, `context.${field}`, NO_TEXT)),
    body(path, 'context.mode', ['"fast"', ...NO_TEXT]),
    ...['fallback_models', 'mcp_tools', 'client_capabilities', 'device_tools'].map((field) =>
      body(path, `context.${field}`, NO_LIST),
    ),
  ]),
];

/** The JSON text of a body in which only this field is wrong. */
function bodyWith(field: string, value: string): string {
  const [outer = '', inner] = field.split('.');
  const needed = outer === 'query' ? '' : '"query":"hi",';
  return `{${needed}"${outer}":${inner === undefined ? value : `{"${inner}":${value}}`}}`;
}

/** The sentence of either shape. */
function messageOf(found: unknown): string | undefined {
  const { message, error } = found as { message?: string; error?: { reason: string } };
  return message ?? error?.reason;
}

it.each(FIELDS)('%s: names %s when it can not be used', async (path, field, values) => {
  for (const value of values) {
    const {
      status,
      body: found,
      headers,
    } = await margay.request('POST', path.replace('{id}', idle), bodyWith(field, value));
    const shown = `${field} = ${value.slice(0, 40)}`;
    expect([shown, status]).toEqual([shown, 400]);
    // Sizes and nesting are those of the whole that was sent.
    const names =
      value === DEEP
        ? 'nested'
        : value === LARGE
          ? (field.split('.')[0] as string)
          : (field.split('.').at(-1) as string);
    expect([shown, messageOf(found)]).toEqual([shown, expect.stringContaining(names)]);
    expect(headers.get('x-margay-reason')).toMatch(/^[a-z_]+$/);
  }
});

it.each([
  ['GET', '/api/sessions?limit=-1', 'limit'],
  ['GET', '/api/sessions?limit=1.5', 'limit'],
  ['GET', '/api/sessions?limit=NaN', 'limit'],
  ['GET', '/api/sessions?limit=1&limit=2', 'limit'],
  ['GET', '/api/sessions?offset=-1', 'offset'],
  ['GET', '/api/sessions?pinned=1&pinned=0', 'pinned'],
  ['GET', '/api/sessions/{id}/events?after=yesterday', 'after'],
  ['GET', '/api/sessions/{id}/events?after=-1', 'after'],
  ['GET', '/api/sessions/{id}/events?after=2026-02-30T00:00:00Z', 'after'],
  ['GET', '/api/sessions/{id}/stream?after=NaN', 'after'],
  ['GET', '/api/sessions/{id}/stream?ids=1&ids=0', 'ids'],
])('%s %s: names %s', async (method, path, field) => {
  const { status, body: found } = await margay.request(method, path.replace('{id}', idle));
  expect([status, messageOf(found)]).toEqual([400, expect.stringContaining(`'${field}'`)]);
});

it.each([
  ['an array', '[]', /body is unusable/],
  ['cut JSON', '{"query":', /not valid JSON/],
  ['nesting without end', `{"x":${DEEP}}`, /nested more than 100 levels/],
])('refuses %s as a body', async (_, sent, message) => {
  const { status, body: found } = await margay.request('POST', QUERY.replace('{id}', idle), sent);
  expect([status, messageOf(found)]).toEqual([400, expect.stringMatching(message)]);
});

it.each([
  ['a path', '..%2f..%2fetc'],
  ['NUL', '%00'],
  ['a word of the language', '__proto__'],
  ['upper case', 'A'.repeat(32)],
  ['4,000 characters', 'a'.repeat(4_000)],
  ['a good form', '0'.repeat(32)],
])('knows no session whose id is %s', async (_, id) => {
  for (const [method, path] of [
    ['GET', ''],
    ['GET', '/events'],
    ['GET', '/stream'],
    ['GET', '/blobs/x'],
    ['POST', '/query'],
    ['POST', '/message'],
    ['POST', '/interrupt'],
    ['POST', '/terminate'],
  ] as const) {
    const sent = method === 'POST' ? { query: 'hi', text: 'hi' } : undefined;
    const { status, body: found } = await margay.request(method, `/api/sessions/${id}${path}`, sent);
    expect([path, status, found]).toEqual([
      path,
      404,
      {
        error: expect.objectContaining({ retryable: false }) as object,
        ...(path === '' || path.startsWith('/blobs') ? { message: expect.any(String) as string } : {}),
      },
    ]);
  }
});

it('takes odd texts as they are, and gives them back', async () => {
  const context = { 'a.b': 1, $set: { $where: 'x' }, '': 2, constructor: { prototype: 3 }, nul: 'a\u0000b' };
  const query = '\u0000\u001b[31m \ud83d\ude00 \u2028 data: x\n\n{"type":"stream_end"}';
  const session = await margay.client.sessions.create({ context });
  const { status } = await margay.request('POST', `/api/sessions/${session.id}/query`, { query });
  expect(status).toBe(202);
  const frames = await margay.frames(session.id);
  expect(frames.filter(({ event }) => event.type === 'stream_end')).toHaveLength(1);
  expect(frames.find(({ event }) => event.type === 'user')?.event.payload).toEqual({ text: query });
  const { body: summary } = await margay.request('GET', `/api/sessions/${session.id}`);
  expect((summary as { context: object }).context).toMatchObject(context);
});

it('has started no run and lost nothing by all that', async () => {
  const types = (await margay.storedFrames(idle)).map((text) => (JSON.parse(text) as { type: string }).type);
  expect(types).toEqual(['session', 'context']);
});
