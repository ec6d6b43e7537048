import { join } from 'node:path';
import { createLogger } from '@margay/platform';
import type { DrivenRun, RunEnd } from '../runs/run-end';
import { Isolation, type IsolationOptions } from './isolation';

const ENTRY = join(__dirname, '../spec/lonely-child.cjs');
const logger = createLogger({ level: 'off' });
/** Time for a process to start and to listen, on a busy machine, too. */
const PATIENT = { stopGraceMs: 60_000 };

let outcomes: string[];
let driven: DrivenRun[];
let ends: Promise<RunEnd>[];

beforeEach(() => ([outcomes, driven, ends] = [[], [], []]));
afterEach(async () => {
  for (const run of driven) run.stop('fenced');
  await Promise.all(ends);
});

function isolation(options: Partial<IsolationOptions> = {}): Isolation {
  return new Isolation({
    entry: ENTRY,
    heapMb: 64,
    environment: { PATH: '/usr/bin' },
    places: 4,
    instance: 'spec',
    log: 'ignore',
    onEnded: (outcome) => outcomes.push(outcome),
    ...options,
  });
}

/** Drives a run in a process that plays this part. */
function play(part: string, by = isolation()): { run: DrivenRun; end: Promise<RunEnd> } {
  const assign = { sessionId: 's', runId: part, epoch: 4, claimC: 9, grant: 'first', traceparent: '', isolated: true };
  const run = by.isolate({ assign, failures: 2, logger });
  const end = run.drive();
  driven.push(run);
  ends.push(end);
  return { run, end };
}

const told = async (part: string, by = isolation()): Promise<string> => {
  const end = await play(part, by).end;
  return end.kind === 'lost' ? end.detail : end.kind;
};

describe('the process of a single run', () => {
  it('says how its run has left', async () => {
    expect(await play('ends').end).toEqual({ kind: 'left' });
    expect(outcomes).toEqual(['left']);
  });

  it('learns of its run and how often that failed before', async () => {
    expect(JSON.parse(await told('shows its assignment'))).toEqual({
      kind: 'assign',
      assign: { sessionId: 's', runId: 'shows its assignment', epoch: 4, claimC: 9, grant: 'first', traceparent: '', isolated: true }, // prettier-ignore
      failures: 2,
      instance: 'spec',
    });
  });

  it('gets renewed grants', async () => {
    const { run, end } = play('shows its grants');
    run.renew('second');
    expect(await end).toEqual({ kind: 'lost', detail: expect.stringContaining('second') });
  });

  it('has a heap limit of its own, whatever that of its parent is', async () => {
    expect(await told('shows its settings')).toMatch(/--max-old-space-size=64$/);
  });

  it('has no more of the environment than a run needs', async () => {
    const environment = {
      PATH: '/usr/bin',
      OPENAI_API_KEY: 'needed',
      OPENAI_API_KEY_FILE: '/run/needed',
      MARGAY_SESSION_URL: 'needed',
      OTEL_EXPORTER_OTLP_ENDPOINT: 'needed',
      MARGAY_BOOTSTRAP_KEY: 'secret',
      MARGAY_MONGODB_URL: 'secret',
      CLOUD_TOKEN: 'secret',
    };
    const shown = await told('shows its environment', isolation({ environment }));
    expect(shown).not.toContain('secret');
    expect(JSON.parse(shown)).toMatchObject({
      PATH: '/usr/bin',
      OPENAI_API_KEY: 'needed',
      OPENAI_API_KEY_FILE: '/run/needed',
      MARGAY_SESSION_URL: 'needed',
      OTEL_EXPORTER_OTLP_ENDPOINT: 'needed',
    });
  });

  it('is heard on where it said something that is not understood', async () => {
    expect(await told('talks nonsense')).toBe('left');
  });
});

describe('a run whose process ends without a word', () => {
  it.each([
    ['exits', 'its process exited with code 3'],
    ['is killed', 'its process was killed by SIGKILL, perhaps by the system for want of memory'],
    ['eats memory', 'its process was aborted, most likely at its heap limit of 64 MB'],
  ])('is lost where it %s', async (part, detail) => {
    expect(await play(part).end).toEqual({ kind: 'lost', detail });
    expect(outcomes).toEqual(['died']);
  });

  it('is not to be blamed for a process that did not even start', async () => {
    expect(await play('does not start').end).toEqual({ kind: 'left' });
    const missing = isolation({ entry: join(__dirname, 'no-such-script.cjs') });
    expect(await play('ends', missing).end).toEqual({ kind: 'left' });
    expect(outcomes).toEqual(['not_started', 'not_started']);
  });
});

describe('a run that is stopped', () => {
  it('hears why and says how it has left', async () => {
    const { run, end } = play('waits', isolation(PATIENT));
    run.stop('drained');
    run.stop('fenced');
    expect(await end).toEqual({ kind: 'lost', detail: 'stopped for drained' });
  });

  it('is ended with its process where that does not listen, and nobody is to blame', async () => {
    const { run, end } = play('never listens');
    const startedMs = performance.now();
    run.stop('drained');
    expect(await end).toEqual({ kind: 'left' });
    expect(performance.now() - startedMs).toBeGreaterThanOrEqual(990);
    expect(outcomes).toEqual(['left']);
  });
});

describe('places for processes', () => {
  it('are given in order, each until its process has ended', async () => {
    const two = isolation({ places: 2, ...PATIENT });
    const order: string[] = [];
    const [first, second] = [play('waits', two), play('waits', two)];
    const third = play('ends', two);
    void third.end.then(() => order.push('third'));
    void first.end.then(() => order.push('first'));
    await expect(Promise.race([third.end, new Promise((resolve) => setTimeout(resolve, 500, 'none'))])).resolves.toBe('none'); // prettier-ignore
    first.run.stop('fenced');
    expect(await third.end).toEqual({ kind: 'left' });
    expect(order).toEqual(['first', 'third']);
    second.run.stop('fenced');
    await second.end;
  });

  it('are not waited for by a run that is stopped, which starts nothing', async () => {
    const one = isolation({ places: 1, ...PATIENT });
    const first = play('waits', one);
    const second = play('exits', one);
    second.run.stop('drained');
    expect(await second.end).toEqual({ kind: 'left' });
    first.run.stop('fenced');
    await first.end;
    expect(outcomes).toEqual(['lost']);
  });
});
