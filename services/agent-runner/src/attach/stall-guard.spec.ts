import type { runnersPb } from '@margay/contracts';
import type { AttachHost } from './attach-client';
import { StallGuard } from './stall-guard';

let nowMs: number;
/** Runs that the process holds. */
let held: runnersPb.HeldRun[];
let revoked: string[];
/** Whether a revoked run is let go. */
let letsGo: boolean;
let guard: StallGuard;

beforeEach(() => {
  nowMs = 0;
  held = [];
  revoked = [];
  letsGo = true;
  const host: AttachHost = {
    freeSlots: () => 9 - held.length,
    heldRuns: () => held,
    lostRuns: () => [],
    onAssign: ({ sessionId, runId, epoch }) => held.push({ sessionId, runId, epoch }),
    onRevoke: ({ runId }) => {
      revoked.push(runId);
      if (letsGo) held = held.filter((run) => run.runId !== runId);
    },
    onGrant: () => undefined,
    onSilence: () => {
      held = [];
    },
  };
  guard = new StallGuard(host, () => nowMs);
});

function assign(runId: string, isolated = false): void {
  guard.onAssign({ sessionId: 's', runId, epoch: 2, claimC: 1, grant: '', traceparent: '', isolated });
}

const passes = (check: 'checkReady' | 'checkLive'): boolean => {
  try {
    guard[check]();
    return true;
  } catch (error) {
    expect(error).toMatchObject({ reason: 'runs_stalled' });
    return false;
  }
};

/** What is seen each five seconds, heartbeats included. */
function pass(seconds: number): { ready: string; live: string; listed: string; free: number[] } {
  const seen = { ready: '', live: '', listed: '', free: [] as number[] };
  for (let i = 0; i < seconds / 5; i++) {
    nowMs += 5_000;
    seen.ready += passes('checkReady') ? '+' : '-';
    seen.live += passes('checkLive') ? '+' : '-';
    seen.listed += guard.heldRuns().length;
    seen.free.push(guard.freeSlots());
  }
  return seen;
}

describe('a runner that takes a run and does nothing with it', () => {
  it('loses readiness first and liveness next, takes no more runs, and lists the run no longer', () => {
    letsGo = false;
    assign('a');
    expect(pass(35)).toEqual({ ready: '+------', live: '+++++--', listed: '1110000', free: [8, 0, 0, 0, 0, 0, 0] });
    expect(new Set(revoked)).toEqual(new Set(['a']));
  });

  it('is well again once it could let go of the run', () => {
    assign('a');
    expect(pass(30)).toMatchObject({ ready: '+---++', live: '++++++', listed: '111000' });
    expect(guard.freeSlots()).toBe(9);
  });

  it('is well from the moment a journal is opened, or it is said why not', () => {
    assign('a');
    assign('b');
    pass(10);
    guard.settled({ runId: 'a', epoch: 2 });
    expect(pass(5)).toMatchObject({ ready: '+', live: '+', listed: '2' });
  });
});

describe('one run that can not be opened', () => {
  it('leaves, while the runner of others is well', () => {
    letsGo = false;
    assign('good');
    guard.settled({ runId: 'good', epoch: 2 });
    assign('bad');
    expect(pass(40)).toMatchObject({ ready: '++++++++', live: '++++++++', listed: '22211111' });
  });

  it('is left in peace in a process of its own', () => {
    assign('apart', true);
    expect(pass(40)).toMatchObject({ ready: '++++++++', listed: '11111111' });
  });

  it('is forgotten when all runs are stopped because nobody answers', () => {
    assign('a');
    guard.onSilence();
    expect(pass(40)).toMatchObject({ ready: '++++++++', live: '++++++++', listed: '00000000' });
  });
});
