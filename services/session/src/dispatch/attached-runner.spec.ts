import type { runnersPb } from '@margay/contracts';
import { AttachedRunner } from './attached-runner';

const held = (runId: string) => ({ sessionId: 's', runId, epoch: 2 });
const assignment = (runId: string) => ({ ...held(runId), claimC: 1, grant: '', traceparent: '', isolated: false });

let sent: runnersPb.AttachResponse[];
let runner: AttachedRunner;
let nowMs: number;

beforeEach(() => {
  sent = [];
  nowMs = 1_000_000;
  const stream = { send: (message: runnersPb.AttachResponse) => void sent.push(message), end: () => undefined };
  runner = new AttachedRunner('i', 'p', 5, 1, stream, () => nowMs);
});

describe('an attached runner', () => {
  it('has no free slot before it has said what it holds', () => {
    expect(runner.free).toBe(0);
    runner.onHeartbeat(2, [held('a')]);
    expect(runner.free).toBe(2);
    expect(runner.held).toEqual([held('a')]);
  });

  it('is given nothing while it misses heartbeats: it may stand still with its connection open', () => {
    runner.onHeartbeat(2, []);
    nowMs += 7_000;
    expect(runner.free).toBe(2);
    nowMs += 2_000;
    expect(runner.free).toBe(0);
    runner.onHeartbeat(2, []);
    expect(runner.free).toBe(2);
  });

  it('counts claims under way and assignments that no heartbeat has named', () => {
    runner.onHeartbeat(3, []);
    runner.reserve();
    expect(runner.free).toBe(2);
    runner.assign(assignment('a'));
    runner.giveBack();
    expect(runner.free).toBe(2);
    // The heartbeat was sent before the assignment arrived.
    runner.onHeartbeat(3, []);
    expect(runner.free).toBe(2);
    runner.onHeartbeat(2, [held('a')]);
    expect(runner.free).toBe(2);
  });

  it('keeps a claim that began before a heartbeat counted, and no slot when it fails', () => {
    runner.onHeartbeat(1, []);
    runner.reserve();
    runner.onHeartbeat(1, []);
    expect(runner.free).toBe(0);
    runner.giveBack();
    expect(runner.free).toBe(1);
  });

  it('gets its slot back when a run has ended elsewhere before any heartbeat named it', () => {
    runner.onHeartbeat(1, []);
    runner.assign(assignment('a'));
    runner.onHeartbeat(1, []);
    expect(runner.free).toBe(0);
    runner.onHeartbeat(1, []);
    expect(runner.free).toBe(1);
    expect(runner.held).toEqual([]);
  });

  it('frees the slot of a run that leaves, once', () => {
    runner.onHeartbeat(0, [held('a')]);
    expect(runner.onRunLeft('a')).toBe(true);
    expect(runner.onRunLeft('a')).toBe(false);
    expect(runner.free).toBe(1);
  });

  it('revokes a run and forgets it', () => {
    runner.onHeartbeat(0, [held('a')]);
    runner.revoke(held('a'), 'moved on');
    expect(sent).toEqual([{ message: { $case: 'revoke', value: { ...held('a'), reason: 'moved on' } } }]);
    expect(runner.held).toEqual([]);
  });

  it('takes nothing more while it drains', () => {
    runner.onHeartbeat(5, []);
    runner.isDrained = true;
    expect(runner.free).toBe(0);
  });
});
