import type { runnersPb } from '@margay/contracts';
import { emptyHead, type Command, type CommitDocument, type CommitOutcome, type Head } from '@margay/log';
import { createLogger } from '@margay/platform';
import { AttachedRunner } from './attached-runner';
import { Dispatcher, type DispatcherPorts } from './dispatcher';
import type { TenantLimit } from './fairness';
import { RunQueue } from './run-queue';
import type { RunningCount, RunRow } from './run.repository';
import { TenantLimits } from './tenant-limits';

const logger = createLogger({ service: 'spec', level: 'off' });

let queue: RunRow[];
let claims: (Command & { kind: 'claim' })[];
let answer: (claim: Command & { kind: 'claim' }) => Promise<Partial<CommitOutcome>>;
let listeners: ((document: CommitDocument) => void)[];
let projected: RunRow[];
let givenBack: RunRow[];
let published: string[];
let looks: number;
let running: RunningCount[];
let shares: Record<string, Partial<TenantLimit>>;
/** Leases that another replica holds. */
let heldElsewhere: Set<string>;
/** What commits owe to the queue is applied when this resolves. */
let applied: () => Promise<void>;
let subscribed: Map<string, () => void>;
let dispatcher: Dispatcher;

function row(id: string, fields: Partial<RunRow> = {}): RunRow {
  const ids = { _id: `${id}:r1`, sessionId: id, tenantId: 't', principal: 'u', pool: 'p' };
  return { ...ids, c: 2, state: 'queued', epoch: 1, owner: null, queuedAtMs: 0, changedAtMs: 0, dueAtMs: null, isIsolated: false, ...fields }; // prettier-ignore
}

function headOf({ runId, epoch, owner }: Command & { kind: 'claim' }): Head {
  const run = { id: runId, no: 1, state: 'running' as const, owner, pool: 'p', acceptedTs: 0, principal: 'u', consumedTo: 0 }; // prettier-ignore
  return { ...emptyHead(runId.replace(':r1', '')), c: 3, epoch: epoch + 1, run };
}

const stored = async (claim: Command & { kind: 'claim' }) => ({ ok: true, c: 3, head: headOf(claim) }) as CommitOutcome;

function runner(instance: string, free: number): { runner: AttachedRunner; runs: () => string[] } {
  const sent: runnersPb.AttachResponse[] = [];
  const made = new AttachedRunner(instance, 'p', free, 1, {
    send: (message) => sent.push(message),
    end: () => undefined,
  });
  made.onHeartbeat(free, []);
  dispatcher.attach(made);
  const runs = () => sent.flatMap(({ message }) => (message?.$case === 'assign' ? [message.value.runId] : []));
  return { runner: made, runs };
}

const settled = async (): Promise<void> => {
  for (let i = 0; i < 20; i++) await new Promise(setImmediate);
};

/** A run is queued by a commit of this replica. */
function commitQueued(id: string, { epoch = 1, c = 3, tenantId = 't' } = {}): void {
  const { runId, owner } = { runId: `${id}:r1`, owner: null };
  const head = headOf({ kind: 'claim', commitId: '', runId, epoch: epoch - 1, owner: '' });
  const queued = { ...head, c, tenantId, run: head.run && { ...head.run, state: 'queued' as const, owner } };
  const effects = [{ kind: 'run' as const, runId, state: 'queued' as const, epoch, owner }];
  announce({ sessionId: id, c, tenantId, head: queued, effects });
}

/** A run leaves by a commit of this replica: it ends, or waits for somebody. */
function commitLeft(id: string, state: 'done' | 'waiting' = 'done', tenantId = 't'): void {
  const effects = [{ kind: 'run' as const, runId: `${id}:r1`, state, epoch: 3, owner: null }];
  announce({ sessionId: id, c: 9, tenantId, head: emptyHead(id), effects });
}

function announce(document: object): void {
  for (const listener of listeners) listener(document as CommitDocument);
}

// Its looks at the queue come by the clock: none comes unless a test lets time pass.
beforeEach(() => void jest.useFakeTimers({ doNotFake: ['setImmediate', 'nextTick', 'queueMicrotask'] }));
afterEach(() => void jest.useRealTimers());

beforeEach(() => {
  [queue, claims, listeners, projected, givenBack, published, looks] = [[], [], [], [], [], [], 0];
  [running, shares, heldElsewhere, subscribed] = [[], {}, new Set(), new Map()];
  answer = stored;
  applied = () => Promise.resolve();
  const runs = {
    queued: async () => {
      looks += 1;
      return queue;
    },
    running: async () => running,
    project: async (changed: RunRow) => void projected.push(changed),
  };
  const find = async (ids: readonly string[]) => ids.map((tenantId) => ({ tenantId, ...shares[tenantId] }));
  const limits = new TenantLimits(find, { weight: 10, maxRunning: Infinity });
  const leases = {
    hold: async (name: string) => !heldElsewhere.has(name),
    release: async () => undefined,
  };
  const ports = {
    log: {
      onCommitted: (listener: never) => {
        listeners.push(listener);
        return () => undefined;
      },
      submit: (_: string, claim: Command & { kind: 'claim' }) => {
        claims.push(claim);
        return answer(claim);
      },
    },
    runs,
    limits,
    queue: new RunQueue({ runs, limits, leases, logger }),
    grants: { sign: async () => 'grant' },
    bus: {
      subscribe: (subject: string, listener: () => void) => {
        subscribed.set(subject, listener);
        return () => undefined;
      },
      publish: (subject: string) => published.push(subject),
    },
    giveBack: async (changed: RunRow) => void givenBack.push(changed),
    applied: () => applied(),
    onAssigned: () => undefined,
  };
  dispatcher = new Dispatcher({ ...(ports as unknown as DispatcherPorts), logger }, ['p']);
  dispatcher.start();
});
afterEach(() => dispatcher.stop());

describe('the dispatcher', () => {
  it('gives a run that was just queued to the freest runner at once, without a look at the queue', async () => {
    const [few, many] = [runner('few', 1), runner('many', 5)];
    commitQueued('a');
    await settled();
    expect([few.runs(), many.runs(), looks]).toEqual([[], ['a:r1'], 0]);
  });

  it('gives a run to another runner than the one that gives it back, which may be leaving', async () => {
    const [giver, other] = [runner('giver', 5), runner('other', 1)];
    giver.runner.onHeartbeat(5, [{ sessionId: 'a', runId: 'a:r1', epoch: 2 }]);
    commitQueued('a', { epoch: 3 });
    await settled();
    expect([giver.runs(), other.runs()]).toEqual([[], ['a:r1']]);
  });

  it('nudges the others where no slot is free here', () => {
    commitQueued('a');
    expect(published).toEqual(['margay.dispatch.p']);
  });

  it('lets a new run wait behind those that waited before it', async () => {
    const { runner: only, runs } = runner('only', 1);
    queue = [row('old'), row('older')];
    await dispatcher.dispatch('p');
    await settled();
    expect(runs()).toEqual(['old:r1']);
    only.onHeartbeat(1, []);
    only.onHeartbeat(1, []);
    commitQueued('new');
    expect(published).toEqual(['margay.dispatch.p']);
    expect(claims).toHaveLength(1);
  });

  it('fills no runner beyond its slots, and claims each life of a run once', async () => {
    const { runs } = runner('only', 2);
    queue = [row('a'), row('b'), row('c')];
    await dispatcher.dispatch('p');
    await dispatcher.dispatch('p');
    await settled();
    expect(runs()).toEqual(['a:r1', 'b:r1']);
    expect(claims).toHaveLength(2);
  });

  it('is not held up by one session whose claim takes long', async () => {
    const { runs } = runner('only', 5);
    answer = (claim) => (claim.runId === 'stuck:r1' ? new Promise(() => undefined) : stored(claim));
    queue = [row('stuck')];
    await dispatcher.dispatch('p');
    queue = [row('stuck'), row('b')];
    await dispatcher.dispatch('p');
    await settled();
    expect(runs()).toEqual(['b:r1']);
  });

  it('writes a row again that a refused claim shows to be stale', async () => {
    const { runner: only } = runner('only', 1);
    const head = { ...emptyHead('a'), c: 9, epoch: 4, run: null };
    answer = async () => ({ ok: false, rejection: { reason: 'lost', message: '' }, head });
    queue = [row('a')];
    await dispatcher.dispatch('p');
    await settled();
    expect(projected).toMatchObject([{ _id: 'a:r1', c: 9, state: 'done', owner: null }]);
    expect(only.free).toBe(1);
  });

  it('tries again after a claim that failed', async () => {
    const { runs } = runner('only', 1);
    answer = () => Promise.reject(new Error('busy'));
    queue = [row('a')];
    await dispatcher.dispatch('p');
    await settled();
    answer = stored;
    await dispatcher.dispatch('p');
    await settled();
    expect(runs()).toEqual(['a:r1']);
  });

  it('takes a run back whose runner left while it was being claimed', async () => {
    const { runner: leaving, runs } = runner('leaving', 1);
    answer = async (claim) => {
      dispatcher.detach(leaving);
      return stored(claim);
    };
    queue = [row('a')];
    await dispatcher.dispatch('p');
    await settled();
    expect(runs()).toEqual([]);
    expect(givenBack).toMatchObject([{ _id: 'a:r1', epoch: 2 }]);
  });

  it('begins no claim once it is stopped', async () => {
    const { runs } = runner('only', 1);
    dispatcher.stop();
    queue = [row('a')];
    await dispatcher.dispatch('p');
    commitQueued('b');
    await settled();
    expect([claims, runs()]).toEqual([[], []]);
  });
});

describe('a tenant with a cap', () => {
  const runningOf = (tenantId: string, runs: number): void => {
    running = runs === 0 ? [] : [{ tenantId, principal: 'u', runs }];
  };

  beforeEach(() => {
    shares = { t: { maxRunning: 2 } };
  });

  it('gets no run beyond it, while others do', async () => {
    const { runs } = runner('only', 9);
    applied = async () => runningOf('t', 2);
    queue = [row('a'), row('b'), row('c'), row('o', { tenantId: 'other' })];
    await dispatcher.dispatch('p');
    await settled();
    expect(runs().toSorted()).toEqual(['a:r1', 'b:r1', 'o:r1']);
  });

  it('does not get past it by claims whose rows are not written yet', async () => {
    const { runs } = runner('only', 9);
    const writes: (() => void)[] = [];
    applied = () => new Promise((resolve) => writes.push(resolve));
    for (const id of ['a', 'b', 'c']) {
      commitQueued(id);
      await settled();
    }
    expect(runs()).toEqual(['a:r1']);
    runningOf('t', 1);
    queue = [row('b'), row('c')];
    for (const write of writes.splice(0)) write();
    await settled();
    expect(runs()).toEqual(['a:r1', 'b:r1']);
  });

  it('gets its next run when one of it has left and the count shows it, at any replica', async () => {
    const { runs } = runner('only', 9);
    runningOf('t', 2);
    queue = [row('a'), row('b')];
    await dispatcher.dispatch('p');
    await settled();
    expect(runs()).toEqual([]);
    applied = async () => runningOf('t', 1 + claims.length);
    commitLeft('x');
    await settled();
    expect(runs()).toEqual(['a:r1']);
    expect(published).toEqual(['margay.dispatch.p']);
  });

  it('has room for a run while another of it waits for somebody', async () => {
    const { runs } = runner('only', 9);
    runningOf('t', 2);
    queue = [row('a')];
    await dispatcher.dispatch('p');
    applied = async () => runningOf('t', 1);
    commitLeft('x', 'waiting');
    await settled();
    expect(runs()).toEqual(['a:r1']);
  });

  it('keeps runs of others from no slot: they start at once although runs of it wait', async () => {
    const { runs } = runner('only', 9);
    runningOf('t', 2);
    queue = [row('a')];
    await dispatcher.dispatch('p');
    commitQueued('o', { tenantId: 'other' });
    await settled();
    expect(runs()).toEqual(['o:r1']);
  });

  it('is counted by one replica at a time near it', async () => {
    const { runs } = runner('only', 9);
    heldElsewhere.add('dispatch/t');
    queue = [row('a'), row('o', { tenantId: 'other' })];
    await dispatcher.dispatch('p');
    await settled();
    expect(runs()).toEqual(['o:r1']);
    heldElsewhere.clear();
    // It is looked at again soon, without a nudge.
    await jest.advanceTimersByTimeAsync(100);
    await settled();
    expect(runs()).toEqual(['o:r1', 'a:r1']);
  });

  it('asks for no lease far below it', async () => {
    const { runs } = runner('only', 9);
    shares = { t: { maxRunning: 50 } };
    heldElsewhere.add('dispatch/t');
    queue = [row('a')];
    await dispatcher.dispatch('p');
    await settled();
    expect(runs()).toEqual(['a:r1']);
  });

  it('is looked at again when limits have changed', async () => {
    const { runs } = runner('only', 9);
    runningOf('t', 2);
    queue = [row('a')];
    await dispatcher.dispatch('p');
    shares = { t: { maxRunning: 3 } };
    subscribed.get('margay.config.tenants')?.();
    await settled();
    expect(runs()).toEqual(['a:r1']);
  });
});

describe('a run that was given back', () => {
  it('starts again at once the first time, and is not offered in a circle', async () => {
    const { runner: only, runs } = runner('only', 1);
    for (let life = 0; life < 20; life++) {
      commitQueued('a', { epoch: 1 + 2 * life, c: 2 + 2 * life });
      await settled();
      only.onHeartbeat(1, []);
      only.onHeartbeat(1, []);
    }
    expect(runs()).toEqual(['a:r1', 'a:r1']);
  });

  it('holds up no other', async () => {
    const { runs } = runner('only', 5);
    for (let life = 0; life < 5; life++) commitQueued('a', { epoch: 1 + 2 * life, c: 2 + 2 * life });
    queue = [row('a', { epoch: 9, c: 10 }), row('b')];
    await dispatcher.dispatch('p');
    await settled();
    expect(runs()).toContain('b:r1');
    expect(claims.some(({ runId, epoch }) => runId === 'a:r1' && epoch === 9)).toBe(false);
  });
});
