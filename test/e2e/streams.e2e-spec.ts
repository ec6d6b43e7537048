import { setTimeout as sleep } from 'node:timers/promises';
import { PlatformHarness } from './harness';
import { LogWriter, note, WRITER_ENV, type WrittenRun } from './streams/log-writer';
import { isLong } from './streams/long-tests';
import { seeded } from './streams/seeded';
import { seqOf, StreamClient, type Block } from './streams/stream-client';

jest.setTimeout(isLong ? 45 * 60_000 : 240_000);

const DRAIN_SECONDS = 6;
const GATEWAYS = ['gateway', 'gateway-2'];
const margay = new PlatformHarness({
  mode: 'split',
  runners: 0,
  replicas: { gateway: 2 },
  env: { ...WRITER_ENV, MARGAY_STREAM_DRAIN_SECONDS: String(DRAIN_SECONDS), MARGAY_RATE_LIMIT_PER_SECOND: '10000' },
});
let writer: LogWriter;
let headers: Record<string, string>;

beforeAll(async () => {
  await margay.start();
  writer = await LogWriter.start(margay);
  headers = { 'x-api-key': margay.platform.apiKey };
}, 600_000);
afterAll(async () => {
  await writer?.stop();
  await margay.stop();
}, 180_000);

const newRun = async () => writer.take(await margay.client.sessions.create({}));

/** Texts of stored events, read in one quiet replay. */
async function stored(sessionId: string): Promise<string[]> {
  const events: string[] = [];
  const onBlock = ({ data }: Block) => void (seqOf(data) !== undefined && events.push(data));
  const url = `${margay.platform.gatewayUrl}/api/sessions/${sessionId}/stream`;
  const client = await StreamClient.open({ url, headers, onBlock });
  await client.until((text) => text.includes('"type":"session_state"'));
  client.cut();
  return events;
}

/** Kills one gateway after the other, as long as a test goes on; there is always one that answers. */
async function killGateways(isOver: () => boolean, onKill: () => void = () => undefined): Promise<void> {
  for (let kills = 0; !isOver(); kills += 1) {
    onKill();
    const name = GATEWAYS[kills % 2] as string;
    await margay.platform.get(name).kill('SIGKILL');
    await margay.platform.restart(name);
    await sleep(200);
  }
}

/** Connections one after the other, to any gateway, each cut after so long, until a connection says that it is enough. */
async function readOn(options: {
  path: () => string;
  headers?: () => Record<string, string>;
  onBlock: (block: Block) => void;
  random: () => number;
  /** How long a connection lives at most. */
  lifeMs: number;
  onCut?: () => void;
  isOver: () => boolean;
}): Promise<void> {
  const { random } = options;
  let { lifeMs } = options;
  while (!options.isOver()) {
    const url = margay.platform.gatewayUrls[Math.floor(random() * 2)] + options.path();
    const more = options.headers?.() ?? {};
    let isNew = false;
    const onBlock = (block: Block) => {
      isNew ||= seqOf(block.data) !== undefined;
      options.onBlock(block);
    };
    // Nobody listens while it is down.
    const client = await StreamClient.open({ url, headers: { ...headers, ...more }, onBlock }).catch(() => undefined);
    if (!client) {
      await sleep(20);
      continue;
    }
    await Promise.race([client.done, sleep(random() * lifeMs)]);
    client.cut();
    // One that is cut before it has brought anything says nothing: on a busy machine they have to live longer.
    lifeMs = isNew ? options.lifeMs : lifeMs * 1.5;
    options.onCut?.();
  }
}

it('pain 11: a client cut a hundred times while gateways are killed has the stored log, byte for byte', async () => {
  const run = await newRun();
  const random = seeded(11);
  const byNumber: string[] = [];
  const byTime: string[] = [];
  let cuts = 0;
  let isWritten = false;
  const isWhole = (events: string[]) => isWritten && events.at(-1)?.includes('"completion"') === true;
  const last = (events: string[]) => JSON.parse(events.at(-1) as string) as { seq: number; ts: string };
  const path = `/api/sessions/${run.sessionId}/stream`;

  const reading = { random, lifeMs: 200, onCut: () => void (cuts += 1) };
  const numbered = readOn({
    ...reading,
    path: () => path,
    headers: (): Record<string, string> =>
      byNumber.length === 0 ? {} : { 'last-event-id': String(last(byNumber).seq) },
    onBlock: ({ data }) => void (seqOf(data) !== undefined && byNumber.push(data)),
    isOver: () => isWhole(byNumber),
  });
  const timed = readOn({
    ...reading,
    path: () => path + (byTime.length === 0 ? '' : `?after=${encodeURIComponent(last(byTime).ts)}`),
    // A cursor by time gives its own event again.
    onBlock: ({ data }) => void (seqOf(data) !== undefined && data !== byTime.at(-1) && byTime.push(data)),
    isOver: () => isWhole(byTime),
  });
  let killed = 0;
  const kills = killGateways(
    () => isWritten,
    () => (killed += 1),
  );
  for (let n = 0; cuts < (isLong ? 1_000 : 100) || killed < 2; n += 1) {
    await run.write(note(`${n}`), note('x'.repeat(Math.floor(random() * 2_000))));
    run.delta('fragment', n);
    await sleep(random() * 20);
  }
  await run.finish();
  isWritten = true;
  await Promise.all([kills, numbered, timed]);
  const log = await stored(run.sessionId);
  expect(byNumber).toEqual(log);
  expect(byTime).toEqual(log);
});

it('one stream of a hundred sessions, through cuts and kills of gateways, has each log byte for byte', async () => {
  const runs: WrittenRun[] = [];
  for (let n = 0; n < 100; n += 10) runs.push(...(await Promise.all(Array.from({ length: 10 }, newRun))));
  const random = seeded(4);
  const seen = new Map(runs.map(({ sessionId }) => [sessionId, [] as string[]]));
  let isWritten = false;
  const names = new Set<string>();
  const reading = readOn({
    random,
    // Long enough for a hundred sessions to be read, or the last ones would never have their turn.
    lifeMs: 4_000,
    path: () => {
      const cursors = [...seen].map(([id, events]) => `${id}:${seqOf(events.at(-1) ?? '{}') ?? 0}`);
      return `/api/stream?sessions=${cursors.join(',')}`;
    },
    onBlock: ({ name, data }) => {
      names.add((JSON.parse(data) as { type: string }).type);
      if (seqOf(data) !== undefined) seen.get(name)?.push(data);
    },
    isOver: () => isWritten && [...seen.values()].every((events) => events.at(-1)?.includes('"completion"')),
  });
  const kills = killGateways(() => isWritten);
  for (let round = 0; round < 6; round += 1) {
    await Promise.all(runs.filter(() => random() < 0.7).map((run) => run.write(note(`${round}`))));
    await sleep(500);
  }
  await Promise.all(runs.map((run) => run.finish()));
  isWritten = true;
  await Promise.all([kills, reading]);
  for (const [sessionId, events] of seen) expect(events).toEqual(await stored(sessionId));
  expect(names).not.toContain('stream_end');
  expect(names).not.toContain('error');
});

it('streams of a gateway that ends close one after the other, and go on at another', async () => {
  const run = await newRun();
  const seqs: number[] = [];
  const onBlock = ({ data }: Block) => void seqs.push(seqOf(data) ?? 0);
  const url = `${margay.platform.gatewayUrls[1]}/api/sessions/${run.sessionId}/stream`;
  const clients = await Promise.all(Array.from({ length: 30 }, () => StreamClient.open({ url, headers, onBlock })));
  await Promise.all(clients.map((client) => client.until((text) => text.includes('"type":"session_state"'))));
  await margay.platform.get('gateway-2').kill('SIGTERM');
  await Promise.all(clients.map(({ done }) => done));
  const endedMs = clients.map(({ endedAtMs }) => endedAtMs);
  expect(Math.max(...endedMs) - Math.min(...endedMs)).toBeGreaterThan(DRAIN_SECONDS * 250);
  for (const { ended, text } of clients) expect([ended, text.includes('stream_end')]).toEqual(['clean', false]);
  const rest: string[] = [];
  const resumed = await StreamClient.open({
    url: `${margay.platform.gatewayUrls[0]}/api/sessions/${run.sessionId}/stream`,
    headers: { ...headers, 'last-event-id': String(Math.max(...seqs)) },
    onBlock: ({ data }) => void (seqOf(data) !== undefined && rest.push(data)),
  });
  await run.write(note('elsewhere'));
  await run.finish();
  await resumed.done;
  expect(rest).toEqual((await stored(run.sessionId)).slice(-rest.length));
  expect(rest[0]).toContain('elsewhere');
  await margay.platform.restart('gateway-2');
});
