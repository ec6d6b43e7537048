import { EventEmitter } from 'node:events';
import type { runnersPb } from '@margay/contracts';
import { createLogger, type GrpcClient } from '@margay/platform';
import { AttachClient } from './attach-client';

type Runners = GrpcClient<typeof runnersPb.RunnersDefinition>;
type Request = NonNullable<runnersPb.AttachRequest['message']>;
type Response = NonNullable<runnersPb.AttachResponse['message']>;

/** One Attach stream as the runner holds it. */
class FakeStream extends EventEmitter {
  readonly written: Request[] = [];
  isCancelled = false;

  write({ message }: runnersPb.AttachRequest): boolean {
    if (message) this.written.push(message);
    return true;
  }

  answer(message: Response): void {
    this.emit('data', { message });
  }

  end(): void {
    setImmediate(() => this.emit('close'));
  }

  cancel(): void {
    this.isCancelled = true;
    this.emit('error', new Error('cancelled'));
  }

  get cases(): string[] {
    return this.written.map(({ $case }) => $case);
  }
}

let streams: FakeStream[];
let nowMs: number;
let isItsTurn: boolean;
let client: AttachClient;
let heard: string[];
let lost: runnersPb.RunDied[];

function opened(): AttachClient {
  return new AttachClient({
    client: { attach: () => streams[streams.push(new FakeStream()) - 1] } as unknown as Runners,
    host: {
      freeSlots: () => 3,
      heldRuns: () => [{ sessionId: 's', runId: 'r', epoch: 2 }],
      lostRuns: () => lost,
      onAssign: ({ runId }) => heard.push(`assign ${runId}`),
      onRevoke: ({ runId }) => heard.push(`revoke ${runId}`),
      onGrant: ({ grant }) => heard.push(`grant ${grant}`),
      onSilence: () => heard.push('silence'),
    },
    instance: 'i',
    pool: 'p',
    slots: 5,
    version: '1',
    mayAttach: () => isItsTurn,
    heartbeatMs: 5_000,
    logger: createLogger({ level: 'off' }),
    now: () => nowMs,
  });
}

beforeEach(() => {
  jest.useFakeTimers({ doNotFake: ['setImmediate', 'nextTick'] });
  streams = [];
  nowMs = 0;
  isItsTurn = true;
  heard = [];
  lost = [];
  client = opened();
  client.start();
});
afterEach(async () => {
  await client.close();
  expect(jest.getTimerCount()).toBe(0);
  jest.useRealTimers();
});

const last = () => streams.at(-1) as FakeStream;
const acknowledge = (grants: runnersPb.RenewedGrant[] = []) =>
  last().answer({ $case: 'heartbeatAck', value: { beat: 1, grants } });

function pass(ms: number): void {
  nowMs += ms;
  jest.advanceTimersByTime(ms);
}

it('says who it is, then what it holds, and so every five seconds', () => {
  expect(last().written).toEqual([
    { $case: 'hello', value: { instance: 'i', pool: 'p', slots: 5, version: '1' } },
    { $case: 'heartbeat', value: { beat: 1, freeSlots: 3, runs: [{ sessionId: 's', runId: 'r', epoch: 2 }] } },
  ]);
  pass(5_000);
  expect(last().written.at(-1)).toMatchObject({ $case: 'heartbeat', value: { beat: 2 } });
});

it('reports lost runs with each heartbeat, over a new stream too', () => {
  lost = [{ sessionId: 's', runId: 'lost', epoch: 4, detail: 'out of memory' }];
  client.heartbeat();
  expect(last().written.slice(-2)).toMatchObject([
    { $case: 'died', value: lost[0] },
    { $case: 'heartbeat', value: { beat: 2 } },
  ]);
  last().emit('error', new Error('cut'));
  pass(100);
  expect(last().cases).toEqual(['hello', 'died', 'heartbeat']);
  lost = [];
  pass(5_000);
  expect(last().cases).toEqual(['hello', 'died', 'heartbeat', 'heartbeat']);
});

it('attaches once its turn in an upgrade has come, however long that takes', async () => {
  await client.close();
  streams = [];
  isItsTurn = false;
  client = opened();
  client.start();
  client.heartbeat();
  for (let seconds = 0; seconds < 60; seconds += 1) pass(1_000);
  expect([streams, heard]).toEqual([[], []]);
  isItsTurn = true;
  pass(1_000);
  expect(last().cases).toEqual(['hello', 'heartbeat']);
  isItsTurn = false;
  last().emit('error', new Error('cut'));
  pass(100);
  expect(streams).toHaveLength(2);
});

it('is attached from the first answer on, until the stream is lost', () => {
  expect(client.isAttached).toBe(false);
  acknowledge();
  expect(client.isAttached).toBe(true);
  last().emit('error', new Error('cut'));
  expect(client.isAttached).toBe(false);
});

it('tells a stream that it leaves nothing of free slots, which would be filled: after a pause it has no run left', () => {
  acknowledge();
  const before = last();
  nowMs += 18_000;
  jest.advanceTimersByTime(5_000);
  expect(heard).toEqual(['silence']);
  expect(before.cases).toEqual(['hello', 'heartbeat']);
  expect(before.isCancelled).toBe(true);
  pass(100);
  expect(last().cases).toEqual(['hello', 'heartbeat']);
});

it('passes on what it is told', () => {
  last().answer({
    $case: 'assign',
    value: { sessionId: 's', runId: 'r', epoch: 3, claimC: 1, grant: 'g', traceparent: '', isolated: false },
  });
  last().answer({ $case: 'revoke', value: { sessionId: 's', runId: 'r', epoch: 3, reason: '' } });
  acknowledge([{ runId: 'r', epoch: 3, grant: 'new' }]);
  expect(heard).toEqual(['assign r', 'revoke r', 'grant new']);
});

it.each(['error', 'end'])('attaches again after its stream ended by %s, and says again who it is', (event) => {
  acknowledge();
  last().emit(event, new Error('cut'));
  pass(100);
  expect(streams).toHaveLength(2);
  expect(last().cases).toEqual(['hello', 'heartbeat']);
});

it('tries ever more slowly, up to a second, and at once after success', () => {
  for (let tries = 0; tries < 20; tries += 1) {
    last().emit('error', new Error('down'));
    pass(1_500);
  }
  expect(streams).toHaveLength(21);
  acknowledge();
  last().emit('error', new Error('cut'));
  pass(75);
  expect(streams).toHaveLength(22);
});

it('stops its runs by itself once nobody has answered for ten seconds, and looks for another replica', () => {
  acknowledge();
  pass(5_000);
  expect(heard).toEqual([]);
  pass(5_000);
  expect(heard).toEqual(['silence']);
  expect(client.isAttached).toBe(false);
  expect(streams[0]?.isCancelled).toBe(true);
  pass(100);
  expect(streams).toHaveLength(2);
  pass(60_000);
  expect(heard).toEqual(['silence']);
  acknowledge();
  expect(client.isAttached).toBe(true);
});

it('leaves a replica that takes the stream and never answers, again and again', () => {
  for (let seconds = 0; seconds < 30; seconds += 1) pass(1_000);
  expect(streams.length).toBeGreaterThanOrEqual(3);
  expect(streams.slice(0, -1).every(({ isCancelled }) => isCancelled)).toBe(true);
  expect(heard).toEqual(['silence']);
});

it('gives the stream that it just opened its time, however long nobody has answered', () => {
  acknowledge();
  last().emit('error', new Error('down'));
  nowMs += 60_000;
  pass(100);
  expect(heard).toEqual(['silence']);
  expect([streams.length, last().isCancelled]).toEqual([2, false]);
});

it('stops its runs when its process has slept', () => {
  acknowledge();
  nowMs += 60_000;
  client.heartbeat();
  expect(heard).toEqual(['silence']);
});

it('takes nothing more from a stream it has left', () => {
  const [old] = streams;
  old?.emit('error', new Error('cut'));
  old?.answer({ $case: 'revoke', value: { sessionId: 's', runId: 'r', epoch: 3, reason: '' } });
  expect(heard).toEqual([]);
});

it('says that it is drained, and attaches no more once it is closed', async () => {
  client.drained();
  expect(last().cases.at(-1)).toBe('drained');
  await client.close();
  last().emit('error', new Error('late'));
  pass(5_000);
  expect(streams).toHaveLength(1);
});
