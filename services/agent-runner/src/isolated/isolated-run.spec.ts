import { EventEmitter } from 'node:events';
import type { ChildProcess } from 'node:child_process';
import { createLogger } from '@margay/platform';
import type { RunEnd } from '../runs/run-end';
import { IsolatedRun } from './isolated-run';

const LOOK_MS = 5_000;

class FakeChild extends EventEmitter {
  pid: number | undefined = 7;
  connected = true;
  readonly signals: string[] = [];

  send(): boolean {
    return true;
  }

  kill(signal: string): boolean {
    this.signals.push(signal);
    this.leave(null, 'SIGKILL');
    return true;
  }

  leave(code: number | null, signal: string | null): void {
    this.emit('exit', code, signal);
    this.connected = false;
    this.emit('disconnect');
  }
}

let child: FakeChild;
let outcomes: string[];
let end: Promise<RunEnd>;

beforeEach(() => {
  jest.useFakeTimers({ doNotFake: ['nextTick', 'setImmediate'] });
  child = new FakeChild();
  outcomes = [];
  const assign = { sessionId: 's', runId: 'r', epoch: 4, claimC: 9, grant: 'g', traceparent: '', isolated: true };
  const run = new IsolatedRun(
    { assign, failures: 0, logger: createLogger({ level: 'off' }) },
    {
      place: (work) => work(),
      start: () => child as unknown as ChildProcess,
      heapMb: 64,
      instance: 'spec',
      stopGraceMs: 1_000,
      onEnded: (outcome) => outcomes.push(outcome),
    },
  );
  end = run.drive();
});
afterEach(() => {
  expect(jest.getTimerCount()).toBe(0);
  jest.useRealTimers();
});

it('ends a process that shows no beat for half a minute, and blames the run', async () => {
  child.emit('message', { kind: 'ready' });
  for (let look = 0; look < 5; look += 1) jest.advanceTimersByTime(LOOK_MS);
  expect(child.signals).toEqual([]);
  child.emit('message', { kind: 'beat' });
  for (let look = 0; look < 5; look += 1) jest.advanceTimersByTime(LOOK_MS);
  expect(child.signals).toEqual([]);
  jest.advanceTimersByTime(LOOK_MS);
  expect(child.signals).toEqual(['SIGKILL']);
  expect(await end).toEqual({ kind: 'lost', detail: 'its process did not answer any more and was ended' });
  expect(outcomes).toEqual(['died']);
});

it('takes the last words of a process that has exited already', async () => {
  child.emit('message', { kind: 'ready' });
  child.emit('exit', 0, null);
  child.emit('message', { kind: 'ended', end: { kind: 'returned' } });
  child.connected = false;
  child.emit('disconnect');
  expect(await end).toEqual({ kind: 'returned' });
});

it('blames nobody where no process is to be had', async () => {
  child.pid = undefined;
  child.emit('error', new Error('spawn EAGAIN'));
  expect(await end).toEqual({ kind: 'left' });
  expect(outcomes).toEqual(['not_started']);
});
