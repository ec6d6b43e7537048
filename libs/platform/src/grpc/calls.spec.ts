import { EventEmitter } from 'node:events';
import { NotFoundError } from '@margay/errors';
import { CallStream, serveCalls, type StartedCall } from './calls';

/** One end of a stream within this process. */
class End extends EventEmitter {
  other!: End;
  isFull = false;
  readonly written: unknown[] = [];

  write(message: unknown): boolean {
    this.written.push(message);
    setImmediate(() => this.other.emit('data', message));
    return !this.isFull;
  }

  end(): void {
    setImmediate(() => this.other.emit('end'));
  }
}

type Handle = (call: StartedCall<string>) => AsyncIterable<string>;

function connect(handle: Handle) {
  const servers: End[] = [];
  const calls = new CallStream<string, string>(() => {
    const [client, server] = [new End(), new End()];
    [client.other, server.other] = [server, client];
    serveCalls<string, string>(server, handle);
    servers.push(server);
    return client;
  });
  return { calls, servers };
}

async function all(frames: AsyncIterable<string>): Promise<string[]> {
  const taken: string[] = [];
  for await (const frame of frames) taken.push(frame);
  return taken;
}

async function* echo({ request, grant }: StartedCall<string>): AsyncIterable<string> {
  yield `${request} 1 ${grant}`;
  await Promise.resolve();
  yield `${request} 2`;
}

const never = new Promise<never>(() => undefined);

it('keeps calls at once apart, over one stream', async () => {
  const { calls, servers } = connect(echo);
  const taken = await Promise.all(['a', 'b', 'c'].map((name) => all(calls.execute(name, { grant: `for ${name}` }))));
  expect(taken).toEqual([
    ['a 1 for a', 'a 2'],
    ['b 1 for b', 'b 2'],
    ['c 1 for c', 'c 2'],
  ]);
  expect(servers).toHaveLength(1);
});

it('gives a failure behind the frames that came before it, with its reason', async () => {
  const { calls } = connect(async function* () {
    yield 'first';
    throw new NotFoundError('thing_not_found', 'no such thing');
  });
  const taken: string[] = [];
  const failing = (async () => {
    for await (const frame of calls.execute('x', { grant: '' })) taken.push(frame);
  })();
  await expect(failing).rejects.toMatchObject({
    code: 'NOT_FOUND',
    reason: 'thing_not_found',
    message: 'no such thing',
  });
  expect(taken).toEqual(['first']);
});

it('says nothing of what broke inside', async () => {
  const { calls } = connect(async function* () {
    yield 'x';
    throw new Error('secret');
  });
  await expect(all(calls.execute('x', { grant: '' }))).rejects.toMatchObject({
    code: 'INTERNAL',
    message: 'the call failed inside Margay',
  });
});

it('leaves a call at an abort: its handler is told, its sibling goes on', async () => {
  const left: string[] = [];
  const { calls } = connect(async function* ({ request, signal }) {
    signal.addEventListener('abort', () => left.push(request));
    yield 'running';
    if (request === 'long') await never;
  });
  const abort = new AbortController();
  const long = all(calls.execute('long', { grant: '', signal: abort.signal }));
  await all(calls.execute('short', { grant: '' }));
  abort.abort(new Error('handed over'));
  await expect(long).rejects.toThrow('handed over');
  await new Promise(setImmediate);
  expect(left).toEqual(['long']);
});

it('tells calls under way that the stream was cut, and opens another one for the next', async () => {
  const { calls, servers } = connect(async function* ({ request }) {
    yield request;
    if (request === 'cut') await never;
  });
  const cut = all(calls.execute('cut', { grant: '' }));
  await new Promise(setImmediate);
  servers[0]?.other.emit('error', new Error('connection lost'));
  await expect(cut).rejects.toMatchObject({ code: 'UNAVAILABLE', reason: 'calls_cut' });
  expect(await all(calls.execute('next', { grant: '' }))).toEqual(['next']);
  expect(servers).toHaveLength(2);
});

it('sends no faster than frames are taken', async () => {
  const { calls, servers } = connect(async function* () {
    yield '1';
    yield '2';
  });
  const first = calls.execute('x', { grant: '' })[Symbol.asyncIterator]();
  const frame = first.next();
  (servers[0] as End).isFull = true;
  expect((await frame).value).toBe('1');
  await new Promise(setImmediate);
  expect(servers[0]?.written).toHaveLength(1);
  servers[0]?.emit('drain');
  expect((await first.next()).value).toBe('2');
  servers[0]?.emit('drain');
  expect((await first.next()).done).toBe(true);
});

it('tells everything still running on a closed stream to stop', async () => {
  let left = false;
  const { calls, servers } = connect(async function* ({ signal }) {
    signal.addEventListener('abort', () => (left = true));
    yield 'x';
    await never;
  });
  const running = all(calls.execute('x', { grant: '' }));
  await new Promise(setImmediate);
  calls.close();
  servers[0]?.emit('close');
  await expect(running).rejects.toMatchObject({ reason: 'calls_cut' });
  expect(left).toBe(true);
});
