import { Collection } from './collection';
import { Endings } from './endings';
import { LABEL, ORPHANED_AT, ownLabels } from './labels';
import { podNameOf, Pods } from './pods';
import type { SandboxContext } from './sandbox-context';
import type { NewSandboxRow, SandboxRow } from './sandbox-row';
import { ClusterFixture, OWN_NAMESPACE, OWN_TENANT } from '../spec/cluster-fixture';
import type { FakeObject } from '../spec/fake-cluster';

const MINUTE = 60_000;
const DAY = 24 * 60 * MINUTE;

let fixture: ClusterFixture;
let context: SandboxContext;
let collection: Collection;
let now: number;
let removed: string[];
let ids = 0;

beforeAll(async () => {
  fixture = await new ClusterFixture().start();
  context = await fixture.context();
}, 600_000);
afterAll(() => fixture.close());
beforeEach(() => {
  for (const object of [...fixture.cluster.objects.values()]) fixture.cluster.remove(object);
  fixture.cluster.writes.length = 0;
  fixture.cluster.forbidden.clear();
  now = Date.now();
  removed = [];
  const endings = new Endings(context, new Pods(context));
  const onRemoved = (kind: string) => void removed.push(kind);
  collection = new Collection(context, endings, { idleMs: 15 * MINUTE, onRemoved, now: () => now });
});
afterEach(async () => {
  for (const row of await context.sandboxes.listLive()) await context.sandboxes.finish(row, 'failed', 'spec');
});

async function row(more: Partial<NewSandboxRow> = {}, hasSession = true): Promise<SandboxRow> {
  const _id = (ids += 1).toString(16).padStart(20, '0');
  const session = hasSession ? { sessionId: `s${ids}` } : {};
  const bound = { tenantId: 't1', lastActiveAt: new Date(), ...session };
  const made = { class: 'default', pool: 'test/default', namespace: 'test', specHash: 'h', attempt: 1, tries: 1 };
  const whole = { _id, claimKey: `s/${_id}`, state: 'ready', podName: podNameOf(_id), ...bound, ...made, ...more };
  return (await context.sandboxes.insert(whole as NewSandboxRow)) as SandboxRow;
}

function podOf({ _id, sessionId = '' }: Pick<SandboxRow, '_id' | 'sessionId'>): FakeObject {
  const labels = { ...ownLabels('spec'), [LABEL.sandbox]: _id, [LABEL.session]: sessionId };
  return fixture.cluster.add('Pod', podNameOf(_id), labels);
}

const pods = (): string[] => fixture.cluster.list('pods').map(({ metadata }) => metadata.name);
const stateOf = async ({ _id }: SandboxRow) => (await context.sandboxes.find(_id))?.state;

describe('the collection', () => {
  it('leaves alone what belongs together', async () => {
    const ready = await row();
    const pod = podOf(ready);
    await context.sandboxes.change(ready, { podUid: pod.metadata.uid });
    await collection.sweep();
    now += 10 * MINUTE;
    expect(await collection.sweep()).toBe(0);
    expect(pods()).toEqual([pod.metadata.name]);
    expect(fixture.cluster.writes).toEqual([]);
  });

  it('removes a pod without a row after a minute, and nothing that lacks one of our labels', async () => {
    const orphan = podOf({ _id: 'f'.repeat(20), sessionId: 'gone' });
    const labels = { ...ownLabels('spec'), [LABEL.sandbox]: '0'.repeat(20) };
    fixture.cluster.add('Pod', 'twin', { ...labels, [LABEL.managedBy]: 'somebody' });
    fixture.cluster.add('Pod', 'foreign', { ...labels, [LABEL.install]: 'other' });
    await collection.sweep();
    now += 59_000;
    await collection.sweep();
    expect(pods()).toContain(orphan.metadata.name);
    now += 1_000;
    expect(await collection.sweep()).toBe(1);
    expect(pods().sort()).toEqual(['foreign', 'twin']);
    expect(removed).toEqual(['pod']);
  });

  it('counts a session as having lost a pod that has been gone for a minute', async () => {
    const bound = await row({ podUid: 'u1' });
    const waiting = await row({ tenantId: 'system', state: 'warming', podUid: 'u2' }, false);
    await collection.sweep();
    now += MINUTE;
    await collection.sweep();
    expect([await stateOf(bound), await stateOf(waiting)]).toEqual(['lost', 'failed']);
  });

  it('goes on with an end that was broken off before the pod was deleted', async () => {
    const ready = await row();
    const pod = podOf(ready);
    const known = (await context.sandboxes.change(ready, { podUid: pod.metadata.uid })) as SandboxRow;
    await context.sandboxes.finish(known, 'draining', 'released');
    now = Date.now() + 11_000;
    await collection.sweep();
    expect(pods()).toEqual([]);
    expect(await stateOf(ready)).toBe('released');
  });

  it('removes a pod that was made while its row came to an end, without waiting', async () => {
    const starting = await row({ state: 'starting' });
    podOf(starting);
    await context.sandboxes.finish(starting, 'released', 'released');
    now = Date.now() + 11_000;
    await collection.sweep();
    expect(pods()).toEqual([]);
  });

  it('leaves a claim that waits for its pod, as long as it shows that it does', async () => {
    const starting = await row({ state: 'starting' });
    for (let minute = 0; minute < 5; minute += 1) {
      await collection.sweep();
      now += 59_000;
    }
    expect(await stateOf(starting)).toBe('failed');
    const waiting = await row({ state: 'starting', lastActiveAt: new Date(now + 3 * MINUTE) });
    for (let minute = 0; minute < 3; minute += 1) {
      now += 59_000;
      await collection.sweep();
    }
    expect(await stateOf(waiting)).toBe('starting');
  });

  it('suspends what nobody has used for the idle time, and what is a day old between calls', async () => {
    const idle = await row();
    podOf(idle);
    now = Date.now() + 15 * MINUTE + 1_000;
    await collection.sweep();
    expect(await stateOf(idle)).toBe('released');
    const old = await row({ claimedAt: new Date(now - DAY - 1_000), lastActiveAt: new Date(now - 61_000) });
    const busy = await row({ claimedAt: new Date(now - DAY - 1_000), lastActiveAt: new Date(now - 10_000) });
    for (const one of [old, busy]) podOf(one);
    await collection.sweep();
    expect([await stateOf(old), await stateOf(busy)]).toEqual(['released', 'ready']);
  });

  it('concludes nothing from an API server that does not answer', async () => {
    const bound = await row({ podUid: 'u1' });
    fixture.cluster.isDown = true;
    await expect(collection.sweep()).rejects.toMatchObject({ reason: 'cluster_unavailable' });
    now += 5 * MINUTE;
    await expect(collection.sweep()).rejects.toMatchObject({ reason: 'cluster_unavailable' });
    fixture.cluster.isDown = false;
    await collection.sweep();
    expect(await stateOf(bound)).toBe('ready');
  });

  it("marks a volume without a workspace, deletes it after a day, and labels a workspace's", async () => {
    const orphan = fixture.cluster.add('PersistentVolumeClaim', 'orphan', ownLabels('spec'));
    const used = fixture.cluster.add('PersistentVolumeClaim', 'used', ownLabels('spec'));
    const workspace = await context.workspaces.obtain('t1', 's/kept', { class: 'default', storage: 'volume' });
    const volume = { namespace: 'test', pvcName: 'used', pvcUid: used.metadata.uid };
    await context.workspaces.giveVolume('t1', workspace._id, volume);
    await collection.sweep();
    expect(used.metadata.labels?.[LABEL.workspace]).toBe(workspace._id);
    now += MINUTE;
    await collection.sweep();
    expect(orphan.metadata.annotations?.[ORPHANED_AT]).toBe(new Date(now).toISOString());
    now += DAY - 1_000;
    await collection.sweep();
    expect(fixture.cluster.list('persistentvolumeclaims')).toHaveLength(2);
    now += 1_000;
    await collection.sweep();
    expect(fixture.cluster.list('persistentvolumeclaims').map(({ metadata }) => metadata.name)).toEqual(['used']);
  });

  it('gives a volume back to the workspace that its label names, after a restore of the store', async () => {
    const { _id } = await context.workspaces.obtain('t1', 's/restored', { class: 'default', storage: 'volume' });
    const labels = { ...ownLabels('spec'), [LABEL.workspace]: _id };
    const claim = fixture.cluster.add('PersistentVolumeClaim', 'restored', labels);
    expect(await collection.sweep()).toBe(1);
    const adopted = { pvcName: 'restored', pvcUid: claim.metadata.uid };
    expect(await context.workspaces.findByVolume('test', 'restored')).toMatchObject({ _id, volume: adopted });
    // The same name under another UID, as after a restore of the cluster.
    fixture.cluster.remove(claim);
    const again = fixture.cluster.add('PersistentVolumeClaim', 'restored', labels);
    expect(await collection.sweep()).toBe(1);
    expect((await context.workspaces.findByVolume('test', 'restored'))?.volume?.pvcUid).toBe(again.metadata.uid);
    expect(await collection.sweep()).toBe(0);
    expect(again.metadata.annotations).toBeUndefined();
  });

  it("looks after a tenant's own namespace, whatever another one answers", async () => {
    const own = await row({ namespace: OWN_NAMESPACE, tenantId: OWN_TENANT, podUid: 'u1' });
    const other = await row({ podUid: 'u2' });
    const labels = { ...ownLabels('spec'), [LABEL.sandbox]: 'e'.repeat(20) };
    fixture.cluster.add('Pod', 'orphan', labels, OWN_NAMESPACE);
    fixture.cluster.add('Pod', podNameOf(own._id), { ...labels, [LABEL.sandbox]: own._id });
    fixture.cluster.forbidden.add('test');
    await collection.sweep();
    now += MINUTE;
    expect(await collection.sweep()).toBe(2);
    expect([await stateOf(own), await stateOf(other)]).toEqual(['lost', 'ready']);
    expect(fixture.cluster.list('pods', OWN_NAMESPACE)).toEqual([]);
  });

  it("takes no volume in a tenant's own namespace for another tenant's", async () => {
    const made = { class: 'default', storage: 'volume' } as const;
    const foreign = await context.workspaces.obtain('t1', 's/foreign', made);
    const theirs = await context.workspaces.obtain(OWN_TENANT, 's/theirs', made);
    for (const { _id } of [foreign, theirs]) {
      const labels = { ...ownLabels('spec'), [LABEL.workspace]: _id };
      fixture.cluster.add('PersistentVolumeClaim', `of-${_id}`, labels, OWN_NAMESPACE);
    }
    expect(await collection.sweep()).toBe(1);
    expect((await context.workspaces.find('t1', foreign._id))?.volume).toBeUndefined();
    const volume = { namespace: OWN_NAMESPACE, pvcName: `of-${theirs._id}` };
    expect(await context.workspaces.find(OWN_TENANT, theirs._id)).toMatchObject({ volume });
  });
});
