import type { DrivenRun, RunEnd } from '../runs/run-end';
import { BEAT_MS, type FromChild, type ToChild } from './messages';
import { serveRun } from './run-alone';

const ASSIGN: ToChild = {
  kind: 'assign',
  assign: { sessionId: 's', runId: 'r', epoch: 4, claimC: 9, grant: 'first', traceparent: '', isolated: true },
  failures: 0,
  instance: 'spec',
};

let said: FromChild[];
let told: string[];
let tell: (message: ToChild) => void;
let leave: (end: RunEnd) => void;
let served: Promise<void>;

beforeEach(() => {
  jest.useFakeTimers();
  [said, told] = [[], []];
  const channel = {
    onMessage: (listener: (message: ToChild) => void) => void (tell = listener),
    send: async (message: FromChild) => void said.push(message),
  };
  const end = new Promise<RunEnd>((resolve) => (leave = resolve));
  served = serveRun(channel, ({ assign: { runId, epoch } }): DrivenRun => {
    told.push(`drive ${runId} ${epoch}`);
    return {
      run: { sessionId: 's', runId, epoch },
      renew: (grant) => void told.push(`grant ${grant}`),
      stop: (cause) => void told.push(`stop ${cause}`),
      drive: () => end,
    };
  });
});
afterEach(async () => {
  tell(ASSIGN);
  leave({ kind: 'left' });
  await served;
  expect(jest.getTimerCount()).toBe(0);
  jest.useRealTimers();
});

it('drives the run that it is told, once, and says at last how that has left', async () => {
  expect(said).toEqual([]);
  tell(ASSIGN);
  tell(ASSIGN);
  leave({ kind: 'returned' });
  await served;
  expect(told).toEqual(['drive r 4']);
  expect(said).toEqual([{ kind: 'ready' }, { kind: 'ended', end: { kind: 'returned' } }]);
});

it('passes on what it is told about its run, and nothing before it has one', () => {
  tell({ kind: 'grant', grant: 'early' });
  tell(ASSIGN);
  tell({ kind: 'grant', grant: 'newer' });
  tell({ kind: 'stop', cause: 'drained' });
  expect(told).toEqual(['drive r 4', 'grant newer', 'stop drained']);
});

it('shows that its event loop turns', () => {
  jest.advanceTimersByTime(3 * BEAT_MS);
  expect(said).toEqual([{ kind: 'beat' }, { kind: 'beat' }, { kind: 'beat' }]);
});
