import { Registry } from 'prom-client';
import { KubernetesMetrics } from './kubernetes-metrics';

it('says nothing of a pool any more that another replica looks after', async () => {
  const registry = new Registry();
  let nowMs = 0;
  const metrics = new KubernetesMetrics(registry, () => nowMs);
  metrics.pooled('default', { warm: 0, warming: 2, failing: 3 });
  metrics.pooled('dense', { warm: 4, warming: 0, failing: 0 });
  const shown = async () => (await registry.metrics()).match(/^margay_sandbox_pool.*failing.*$/gm);
  const dense = 'margay_sandbox_pool{class="dense",state="failing"} 0';
  expect(await shown()).toEqual(['margay_sandbox_pool{class="default",state="failing"} 3', dense]);
  nowMs = 59_000;
  metrics.pooled('dense', { warm: 4, warming: 0, failing: 0 });
  expect(await shown()).toHaveLength(2);
  nowMs = 61_000;
  expect(await shown()).toEqual([dense]);
  expect(await registry.metrics()).not.toContain('class="default"');
});
