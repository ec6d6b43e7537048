import type { CommitDocument } from '@margay/log';
import { TenantLabel } from '@margay/platform';
import { Registry } from 'prom-client';
import { SessionMetrics } from './metrics';

const RUN = 's:r1';

/** The commit that ends a run, as far as it is looked at. */
const ending = (lastRun: object, runId = RUN): CommitDocument =>
  ({
    tenantId: 'acme',
    effects: [{ kind: 'run', state: 'done', runId }],
    head: { lastRun: { id: RUN, done: true, doneReason: 'error', ...lastRun } },
  }) as unknown as CommitDocument;

describe('runs that end', () => {
  it('are counted by their reason, and as parked where they may not go on without a person', async () => {
    const registry = new Registry();
    const metrics = new SessionMetrics(registry, new TenantLabel(false));
    metrics.countEnded(ending({ failureReason: 'poison' }));
    metrics.countEnded(ending({ failureReason: 'model_overloaded' }));
    metrics.countEnded(ending({ failureReason: 'poison' }, 's:r2'));
    const lines = (await registry.metrics()).split('\n').filter((line) => /^margay_runs_(ended|parked)/.test(line));
    expect(lines.sort()).toEqual([
      'margay_runs_ended_total{done_reason="error"} 2',
      'margay_runs_ended_total{done_reason="other"} 1',
      'margay_runs_parked_total{reason="needs_review"} 0',
      'margay_runs_parked_total{reason="poison"} 1',
    ]);
  });

  it('are counted by tenant, with the time they waited, where that is switched on', async () => {
    const registry = new Registry();
    const metrics = new SessionMetrics(registry, new TenantLabel(true));
    metrics.countEnded(ending({}));
    metrics.dispatched({ pool: 'default', tenantId: 'acme' }, 1_500);
    const text = await registry.metrics();
    expect(text).toContain('margay_runs_ended_total{done_reason="error",tenant="acme"} 1');
    expect(text).toContain('margay_dispatch_wait_seconds_sum{pool="default",tenant="acme"} 1.5');
  });
});

it('shows how far rows are behind only while this replica is the janitor', async () => {
  const registry = new Registry();
  let nowMs = 0;
  const metrics = new SessionMetrics(registry, new TenantLabel(false), () => nowMs);
  const shown = async () => /^margay_effects_lag_seconds (.*)$/m.exec(await registry.metrics())?.[1];
  metrics.effectsLagged(15);
  expect(await shown()).toBe('15');
  nowMs = 61_000;
  expect(await shown()).toBeUndefined();
  metrics.effectsLagged(0);
  expect(await shown()).toBe('0');
});
