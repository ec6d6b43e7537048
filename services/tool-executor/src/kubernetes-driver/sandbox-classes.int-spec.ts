import type { ExecutorFixture } from '../executor-fixture';
import { ClusterFixture } from '../spec/cluster-fixture';
import type { FakeObject } from '../spec/fake-cluster';

let fixture: ClusterFixture;
let executor: ExecutorFixture;
beforeEach(async () => {
  fixture = await new ClusterFixture().start();
  executor = await fixture.replica(0);
}, 600_000);
afterEach(() => fixture.close());

const podOf = (sessionId: string): FakeObject => fixture.podsOf(sessionId)[0] as FakeObject;
const classOfPod = (sessionId: string) => podOf(sessionId).metadata.labels?.['margay.dev/class'];
const liveClasses = async () => (await fixture.rows()).filter(({ state }) => state === 'ready').map((row) => row.class);

describe('the class of a sandbox on a cluster', () => {
  it('is the one that is granted, with its storage, and is counted and shown', async () => {
    const { output } = await executor.shell('echo here > file; ulimit -n', { sandboxClass: 'dense' });
    expect(output).toBe('1024\n');
    expect(classOfPod('s1')).toBe('dense');
    expect(fixture.cluster.list('persistentvolumeclaims')).toEqual([]);
    const metrics = await executor.metrics;
    expect(metrics).toMatch(/margay_sandbox_claim_duration_seconds_count\{class="dense",path="cold"\} 1/);
    expect(metrics).toMatch(/margay_sandboxes\{class="dense",state="ready"\} 1/);
    expect(metrics).toMatch(/margay_sandboxes\{class="default",state="ready"\} 0/);
    const { sandboxesJson } = await executor.workspaces.listSandboxes({}, executor.as('user:ada', 'owner'));
    expect(sandboxesJson.map((json) => JSON.parse(json) as object)).toMatchObject([{ class: 'dense' }]);
  });

  it('brings the limits of experiments to every command, where it is strict', async () => {
    const { output } = await executor.shell('ulimit -t; ulimit -f; ulimit -n', { sandboxClass: 'strict' });
    // Seconds, blocks of 1 KiB, files.
    expect(output).toBe('120\n65536\n256\n');
    expect(classOfPod('s1')).toBe('strict');
  });

  it('can be another one in the next run, at any replica: the first sandbox ends and its files are there again', async () => {
    await executor.shell('echo kept > file', { sandboxClass: 'dense' });
    const first = podOf('s1').metadata.name;
    const other = await fixture.replica(0);
    const { output } = await other.shell('cat file', { sandboxClass: 'strict', epoch: 2 });
    expect(output).toBe('kept\n');
    await fixture.until(() => fixture.podsOf('s1').every(({ metadata }) => metadata.name !== first));
    expect(classOfPod('s1')).toBe('strict');
    expect(await liveClasses()).toEqual(['strict']);
    // The first replica goes on with what there is now, not with what it remembers.
    expect((await executor.shell('cat file', { sandboxClass: 'strict', epoch: 2 })).output).toBe('kept\n');
    expect(await liveClasses()).toEqual(['strict']);
    await executor.client.release({ sessionId: 's1' }, executor.principal);
    await fixture.until(() => fixture.podsOf('s1').length === 0);
  });

  it('is not changed while the files of the sandbox that is there cannot be saved', async () => {
    const limited = { MARGAY_SNAPSHOT_MAX_BYTES: '100000' };
    const [one, other] = [await fixture.replica(0, limited), await fixture.replica(0, limited)];
    const dense = { sandboxClass: 'dense' };
    await one.shell('echo kept > file; head -c 200000 /dev/urandom > big', dense);
    const strict = one.shell('cat file', { sandboxClass: 'strict' });
    await fixture.until(async () => (await fixture.rows())[0]?.unsaved === 'snapshot_too_large');
    expect(await liveClasses()).toEqual(['dense']);
    expect((await other.shell('rm big; cat file', dense)).output).toBe('kept\n');
    expect((await strict).output).toBe('kept\n');
    expect(await liveClasses()).toEqual(['strict']);
  });

  it('does not move the files of a workspace: they stay where they were begun', async () => {
    const workspace = { kind: 'project' as const, projectId: 'a'.repeat(32) };
    await executor.shell('echo shared > file', { workspace });
    const [volume] = fixture.cluster.list('persistentvolumeclaims');
    expect((await executor.shell('cat file', { workspace, sessionId: 's2', sandboxClass: 'dense' })).output).toBe(
      'shared\n',
    );
    expect(classOfPod('s2')).toBe('dense');
    // And the other way round.
    await executor.shell('echo own > file', { sessionId: 's3', sandboxClass: 'dense' });
    expect((await executor.shell('cat file', { sessionId: 's3', epoch: 2 })).output).toBe('own\n');
    expect((await fixture.rows()).filter(({ sessionId, state }) => sessionId === 's3' && state === 'ready')).toMatchObject([{ class: 'default' }]); // prettier-ignore
    expect(fixture.cluster.list('persistentvolumeclaims')).toEqual([volume]);
  });

  it('that is not there any more is the end of a call which never ran', async () => {
    const call = executor.shell('true', { sandboxClass: 'huge' });
    await expect(call).rejects.toMatchObject({ reason: 'sandbox_class_unknown', code: 'INVALID_ARGUMENT' });
    expect(await fixture.rows()).toEqual([]);
    const { sandboxClasses } = await executor.client.listTools({}, executor.principal);
    expect(sandboxClasses).toEqual(['default', 'dense', 'strict']);
  });
});
