import { nothingHeard } from '../executor-fixture';
import { ClusterFixture } from '../spec/cluster-fixture';
import type { SandboxRow } from './sandbox-row';

const WATCHING = { MARGAY_WATCH_NODES: 'true' };
let fixture: ClusterFixture;

beforeEach(async () => (fixture = await new ClusterFixture().start()), 600_000);
afterEach(() => fixture.close());

const nodesOf = (sessionId: string) => fixture.podsOf(sessionId).map(({ spec }) => spec['nodeName']);
const rowOf = async (is: (row: SandboxRow) => boolean) => (await fixture.rows()).find(is);

it('takes waiting sandboxes off a cordoned node at once, and starts others elsewhere', async () => {
  await fixture.replica(1, WATCHING);
  await fixture.untilWarm(1);
  const before = await rowOf(({ state }) => state === 'warm');
  fixture.kubelet.node = 'node2';
  fixture.cluster.cordon('node1');
  await fixture.until(async () => (await rowOf(({ _id }) => _id === before?._id))?.state === 'released');
  expect(await rowOf(({ _id }) => _id === before?._id)).toMatchObject({ reason: 'node_cordoned' });
  await fixture.untilWarm(1);
  expect(await rowOf(({ state }) => state === 'warm')).toMatchObject({ node: 'node2' });
}, 300_000);

it('lets the calls of a session end there, and serves the next one elsewhere, with its files', async () => {
  const executor = await fixture.replica(0, WATCHING);
  await executor.shell('true');
  const heard = nothingHeard();
  const call = executor.shell('echo begun; until [ -e go ]; do sleep 0.1; done; echo kept > file', {}, {}, heard);
  await fixture.until(() => heard.output.includes('begun'));
  fixture.kubelet.node = 'node2';
  fixture.cluster.cordon('node1');
  await fixture.until(async () => (await rowOf(({ state }) => state === 'draining')) !== undefined);
  const next = executor.shell('touch go; cat file 2>/dev/null; ls');
  expect((await next).output).toContain('go');
  expect((await call).finished?.status).toBe('ok');
  expect((await executor.shell('cat file')).output).toBe('kept\n');
  await fixture.until(() => nodesOf('s1').length === 1);
  expect(nodesOf('s1')).toEqual(['node2']);
}, 300_000);

it('leaves sandboxes of other nodes, of nodes that are open again, and those that may be on any', async () => {
  const executor = await fixture.replica(0, WATCHING);
  fixture.kubelet.node = 'node2';
  fixture.cluster.cordon('node1');
  fixture.cluster.cordon('node2');
  fixture.cluster.cordon('node2', false);
  await executor.shell('true');
  const [pod] = fixture.podsOf('s1');
  fixture.cluster.writes.length = 0;
  fixture.cluster.cordon('node3');
  pod!.spec['tolerations'] = [{ operator: 'Exists' }];
  fixture.cluster.setStatus(pod!, {});
  fixture.cluster.cordon('node2');
  // A later one that must go shows that the others have been looked at.
  fixture.kubelet.node = 'node4';
  await executor.shell('true', { sessionId: 's2' });
  fixture.cluster.cordon('node4');
  await fixture.until(() => fixture.cluster.writes.some(({ verb, plural }) => verb === 'delete' && plural === 'pods'));
  expect(fixture.podsOf('s1')[0]?.metadata.deletionTimestamp).toBeUndefined();
}, 300_000);

it('goes on without the right to see nodes', async () => {
  fixture.cluster.forbidden.add('');
  const executor = await fixture.replica(0, WATCHING);
  expect((await executor.shell('echo here')).output).toBe('here\n');
}, 300_000);
