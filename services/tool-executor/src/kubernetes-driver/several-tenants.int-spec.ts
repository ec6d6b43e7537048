import { systemPrincipal } from '@margay/platform';
import { ClusterFixture } from '../spec/cluster-fixture';
import { PROBE_LABEL } from './network-pods';
import { NetworkCheckRepository } from './network-check.repository';

let fixture: ClusterFixture;

beforeEach(async () => (fixture = await new ClusterFixture().start()), 600_000);
afterEach(() => fixture.close());

it('has no sandbox for a second tenant before network policies are known to be enforced', async () => {
  const executor = await fixture.replica(0, { MARGAY_MULTI_TENANT: 'true' });
  expect((await executor.shell('echo first')).output).toBe('first\n');
  const second = { tenantId: 't2', sessionId: 'other' };
  await expect(executor.shell('true', second)).rejects.toMatchObject({ reason: 'network_policy_unenforced' });
  // It has begun to look, and the end of the process does not wait for that.
  await fixture.until(() => fixture.cluster.list('pods').some(({ metadata }) => metadata.labels?.[PROBE_LABEL]));
  // Pods that look at the network never start on this cluster; somebody found out all the same.
  const checks = new NetworkCheckRepository(fixture.collection('networkChecks'), fixture.collection('firstTenant'));
  await checks.store({ _id: 'test', holds: true, detail: 'closed', at: new Date() });
  await fixture.until(async () => {
    const heard = await executor.shell('echo second', second).catch(() => undefined);
    return heard?.output === 'second\n';
  });
  // Where its volume lies is asked for, too, wherever new ones are made.
  await executor.client.release({ sessionId: 'other' }, { principal: systemPrincipal('session', 't2') });
  await checks.store({ _id: 'test', holds: false, detail: 'open', at: new Date() });
  await checks.store({ _id: 'own', holds: true, detail: 'closed', at: new Date() });
  const own = JSON.stringify({ own: ['t2'] });
  const next = await fixture.replica(0, { MARGAY_MULTI_TENANT: 'true', MARGAY_WORKSPACES_EXTRA_NAMESPACES: own });
  await expect(next.shell('true', second)).rejects.toMatchObject({ reason: 'network_policy_unenforced' });
}, 300_000);

it('asks nothing of the network where one tenant is alone', async () => {
  const executor = await fixture.replica(0);
  await executor.shell('true');
  await executor.shell('true', { tenantId: 't2', sessionId: 'other' });
  expect(await fixture.collection('networkChecks').countDocuments()).toBe(0);
}, 300_000);
