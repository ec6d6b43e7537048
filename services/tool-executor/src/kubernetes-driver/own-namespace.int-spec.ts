import { systemPrincipal } from '@margay/platform';
import { ClusterFixture, OWN_NAMESPACE, OWN_TENANT } from '../spec/cluster-fixture';
import { LABEL } from './labels';

let fixture: ClusterFixture;

beforeEach(async () => (fixture = await new ClusterFixture().start()), 600_000);
afterEach(() => fixture.close());

const placed = (...tenants: string[]) => ({
  MARGAY_WORKSPACES_EXTRA_NAMESPACES: JSON.stringify({ [OWN_NAMESPACE]: tenants }),
});
const of = (sessionId: string) => ({ tenantId: OWN_TENANT, sessionId });
const asSession = { principal: systemPrincipal('session', OWN_TENANT) };
const namespacesOf = (sessionId: string) => fixture.podsOf(sessionId).map(({ metadata }) => metadata.namespace);
const waitingIn = (namespace: string) =>
  fixture.cluster.list('pods', namespace).filter(({ metadata }) => metadata.labels?.[LABEL.session] === undefined);

it('has its sandboxes, volumes and waiting sandboxes, and other tenants have none there', async () => {
  const executor = await fixture.replica(1, placed(OWN_TENANT));
  await fixture.untilWarm(2);
  expect([waitingIn('test').length, waitingIn(OWN_NAMESPACE).length]).toEqual([1, 1]);
  expect((await executor.shell('echo kept > file', of('own'))).finished?.status).toBe('ok');
  expect((await executor.shell('true', { sessionId: 'other' })).finished?.status).toBe('ok');
  expect([namespacesOf('own'), namespacesOf('other')]).toEqual([[OWN_NAMESPACE], ['test']]);
  const [row] = (await fixture.rows()).filter(({ sessionId }) => sessionId === 'own');
  expect(row).toMatchObject({ namespace: OWN_NAMESPACE, pool: `${OWN_NAMESPACE}/default`, state: 'ready' });
  const [workspace] = (await fixture.workspaces()).filter(({ tenantId }) => tenantId === OWN_TENANT);
  expect(workspace?.volume).toMatchObject({ namespace: OWN_NAMESPACE, pvcName: row?.podName });
  expect(await executor.metrics).toContain(`margay_sandbox_pool{class="${OWN_NAMESPACE}/default",state="warm"}`);
  // A new sandbox, on the volume that is there.
  await executor.client.release({ sessionId: 'own' }, asSession);
  await fixture.until(() => fixture.podsOf('own').length === 0);
  expect((await executor.shell('cat file', of('own'))).output).toBe('kept\n');
  expect(namespacesOf('own')).toEqual([OWN_NAMESPACE]);
}, 300_000);

it('sees a pod of it go', async () => {
  const executor = await fixture.replica(0, placed(OWN_TENANT));
  await executor.shell('true', of('own'));
  const [pod] = fixture.podsOf('own');
  await fixture.kubelet.kill(pod!);
  fixture.cluster.remove(pod!);
  await fixture.until(async () => (await fixture.rows()).some(({ state }) => state === 'lost'));
  expect((await executor.shell('echo again', of('own'))).output).toBe('again\n');
}, 300_000);

it('is chosen for new volumes only: what lies elsewhere stays there, with the pods on it', async () => {
  const before = await fixture.replica(0, placed());
  await before.shell('echo old > file', of('moved'));
  const after = await fixture.replica(0, placed(OWN_TENANT));
  await after.client.release({ sessionId: 'moved' }, asSession);
  await fixture.until(() => fixture.podsOf('moved').length === 0);
  expect((await after.shell('cat file', of('moved'))).output).toBe('old\n');
  expect(namespacesOf('moved')).toEqual(['test']);
  await after.shell('true', of('fresh'));
  expect(namespacesOf('fresh')).toEqual([OWN_NAMESPACE]);
}, 300_000);

it("needs no waiting sandboxes while it is nobody's", async () => {
  await fixture.replica(1, placed());
  await fixture.untilWarm(1);
  expect(waitingIn(OWN_NAMESPACE)).toEqual([]);
}, 300_000);
