import type { runnersPb } from '@margay/contracts';
import { emptyHead, type Command, type CommitDocument, type CommitOutcome, type Head } from '@margay/log';
import { createLogger } from '@margay/platform';
import { AttachedRunner } from './attached-runner';
import { Dispatcher, type DispatcherPorts } from './dispatcher';
import type { RunRow } from './run.repository';

const logger = createLogger({ service: 'spec', level: 'off' });

let queue: RunRow[];
let claims: (Command & { kind: 'claim' })[];
let answer: (claim: Command & { kind: 'claim' }) => Promise<Partial<CommitOutcome>>;
let listeners: ((document: CommitDocument) => void)[];
let projected: RunRow[];
let givenBack: RunRow[];
let published: string[];
let looks: number;
let dispatcher: Dispatcher;

function row(id: string, fields: Partial<RunRow> = {}): RunRow {
  const ids = { _id: `${id}:r1`, sessionId: id, tenantId: 't', principal: 'u', pool: 'p' };
  return { ...ids, c: 2, state: 'queued', epoch: 1, owner: null, queuedAtMs: 0, changedAtMs: 0, ...fields };
}

function headOf({ runId, epoch, owner }: Command & { kind: 'claim' }): Head {
  const run = { id: runId, no: 1, state: 'running' as const, owner, pool: 'p', acceptedTs: 0, principal: 'u', consumedTo: 0 }; // prettier-ignore
  return { ...emptyHead(runId.replace(':r1', '')), c: 3, epoch: epoch + 1, run };
}

const stored = async (claim: Command & { kind: 'claim' }) => ({ ok: true, c: 3, head: headOf(claim) }) as CommitOutcome;

function runner(instance: string, free: number): { runner: AttachedRunner; runs: () => string[] } {
  const sent: runnersPb.AttachResponse[] = [];
  const made = new AttachedRunner(instance, 'p', 1, { send: (message) => sent.push(message), end: () => undefined });
  made.onHeartbeat(free, []);
  dispatcher.attach(made);
  const runs = () => sent.flatMap(({ message }) => (message?.$case === 'assign' ? [message.value.runId] : []));
  return { runner: made, runs };
}

const settled = async (): Promise<void> => {
  for (let i = 0; i < 20; i++) await new Promise(setImmediate);
};

/** A run is queued by a commit of this replica. */
function commitQueued(id: string): void {
  const { runId, owner } = { runId: `${id}:r1`, owner: null };
  const head = headOf({ kind: 'claim', commitId: '', runId, epoch: 0, owner: '' });
  const queued = { ...head, run: head.run && { ...head.run, state: 'queued' as const, owner } };
  const effects = [{ kind: 'run' as const, runId, state: 'queued' as const, epoch: 1, owner }];
  for (const listener of listeners) listener({ head: queued, effects } as unknown as CommitDocument);
}

beforeEach(() => {
  [queue, claims, listeners, projected, givenBack, published, looks] = [[], [], [], [], [], [], 0];
  answer = stored;
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
    runs: {
      queued: async () => {
        looks += 1;
        return queue;
      },
      running: async () => [],
      project: async (changed: RunRow) => void projected.push(changed),
    },
    grants: { sign: async () => 'grant' },
    bus: { subscribe: () => () => undefined, publish: (subject: string) => published.push(subject) },
    giveBack: async (changed: RunRow) => void givenBack.push(changed),
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
