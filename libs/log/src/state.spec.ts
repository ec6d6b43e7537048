import { acceptCommand, createCommand } from '@margay/testing';
import type { Command, Completion } from './command';
import { decide } from './decide';
import { isRejected } from './decision';
import { emptyHead, type Head } from './head';
import { sessionState, statusOf, titleOf } from './state';

function after(...commands: Command[]): Head {
  return commands.reduce((head, command) => {
    const decision = decide(head, command, 1_700_000_000_123_456);
    if (isRejected(decision)) throw new Error(decision.reject.reason);
    return { ...decision.head, c: head.c + 1 };
  }, emptyHead('0123456789abcdef'));
}

const RUN_ID = '0123456789abcdef:r1';
const running = [
  createCommand(),
  acceptCommand('question'),
  { kind: 'claim', commitId: 'claim', runId: RUN_ID, epoch: 1, owner: 'runner' } as const,
];

function ended(completion: Partial<Completion>): Head {
  return after(...running, {
    kind: 'finish',
    commitId: 'finish',
    runId: RUN_ID,
    epoch: 2,
    events: [],
    records: [],
    text: 'answer',
    completion: { done: true, done_reason: 'completed', ...completion },
  });
}

describe('statusOf', () => {
  it.each<[Partial<Completion>, string]>([
    [{}, 'completed'],
    [{ done_reason: 'compacted' }, 'completed'],
    [{ done_reason: 'command:review' }, 'completed'],
    [{ done_reason: 'anything else' }, 'completed'],
    [{ done: false }, 'incomplete'],
    [{ done_reason: 'max_steps_reached' }, 'incomplete'],
    [{ done_reason: 'max_iterations_reached' }, 'incomplete'],
    [{ done_reason: 'budget_exhausted' }, 'incomplete'],
    [{ done_reason: 'halted_agent_budget' }, 'incomplete'],
    [{ done_reason: 'canceled' }, 'canceled'],
    [{ done_reason: 'cancelled' }, 'canceled'],
    [{ done_reason: 'error' }, 'failed'],
    [{ done_reason: 'compact_failed' }, 'failed'],
    [{ done_reason: 'command_failed:review' }, 'failed'],
    [{ done_reason: 'awaiting_approval' }, 'awaiting_approval'],
    [{ done_reason: 'unmet_goal' }, 'unmet_goal'],
    [{ done_reason: 'safety_blocked' }, 'unmet_goal'],
    [{ blocked_code: 'quota_exceeded' }, 'blocked'],
    [{ blocked_code: 'quota_exceeded', verified: false, done: false }, 'blocked'],
    [{ verified: false }, 'failed'],
    [{ verified: false, done: false }, 'failed'],
    [{ verified: true }, 'completed'],
  ])('is, of a run that ended with %j: %s', (completion, status) => {
    expect(statusOf(ended(completion))).toBe(status);
  });

  it('puts termination above all, and a run above how the last one ended', () => {
    const next = acceptCommand('next');
    const terminate: Command = { kind: 'terminate', commitId: 'terminate', cancelledTriggers: 0 };
    expect(statusOf(after(createCommand()))).toBe('idle');
    expect(statusOf(after(...running))).toBe('running');
    expect(statusOf(after(createCommand(), next, { kind: 'cancel', commitId: 'x' }, acceptCommand('last')))).toBe(
      'running',
    );
    expect(statusOf(after(...running, terminate))).toBe('terminated');
  });
});

describe('sessionState', () => {
  it('shows a running session without the reason of an earlier run', () => {
    expect(sessionState(after(...running))).toEqual({
      running: true,
      status: 'running',
      done_reason: '',
      title: 'question',
      recoverable: false,
      terminated: false,
      terminated_at: null,
    });
  });

  it('shows how the last run ended, and whether it can be recovered', () => {
    const failed = ended({ done: true, done_reason: 'error', failure_reason: 'no model', models_tried: ['a', 'b'] });
    expect(sessionState(failed)).toMatchObject({
      running: false,
      status: 'failed',
      done_reason: 'error',
      recoverable: true,
      failure_reason: 'no model',
      models_tried: ['a', 'b'],
    });
    expect(sessionState(ended({}))).toMatchObject({ recoverable: false, done_reason: 'completed' });
    expect(sessionState(ended({ blocked_code: 'quota_exceeded' }))).toMatchObject({ blocked_code: 'quota_exceeded' });
  });

  it('has no reason before the first run, and a title from the id', () => {
    const head = after(createCommand());
    expect(sessionState(head)).toMatchObject({ status: 'idle', done_reason: null, recoverable: false });
    expect(titleOf(head)).toBe('Session 01234567');
  });

  it('tells when a session was terminated', () => {
    const head = after(createCommand(), { kind: 'terminate', commitId: 'terminate', cancelledTriggers: 0 });
    expect(sessionState(head)).toMatchObject({
      terminated: true,
      terminated_at: '2023-11-14T22:13:20.123456+00:00',
      recoverable: false,
    });
  });
});
