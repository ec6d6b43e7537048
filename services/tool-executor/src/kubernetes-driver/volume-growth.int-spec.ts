import { ClusterFixture } from '../spec/cluster-fixture';
import type { FakeObject } from '../spec/fake-cluster';
import { ownLabels } from './labels';
import { podNameOf } from './pods';
import type { SandboxContext } from './sandbox-context';
import type { NewSandboxRow } from './sandbox-row';
import { VolumeGrowth } from './volume-growth';

const MINUTE = 60_000;
let fixture: ClusterFixture;
let context: SandboxContext;
let growth: VolumeGrowth;
let now: number;
let ids = 0;

beforeAll(async () => {
  fixture = await new ClusterFixture().start();
  context = await fixture.context();
}, 600_000);
afterAll(() => fixture.close(), 60_000);
beforeEach(() => {
  now = 0;
  fixture.cluster.canGrow = true;
  growth = new VolumeGrowth(context, () => now);
});

const sizeOf = ({ spec }: FakeObject): unknown =>
  (spec['resources'] as { requests: { storage: string } }).requests.storage;
/** As the cluster does, some time later. */
const resize = (claim: FakeObject): void => void (claim.status = { capacity: { storage: sizeOf(claim) } });

/** A sandbox of the class `default`, whose volumes begin with 1 GiB and may have 2. */
async function sandbox(more: Partial<NewSandboxRow> = {}): Promise<{ claim: FakeObject; ref: { sandboxId: string } }> {
  const _id = (ids += 1).toString(16).padStart(20, '0');
  const claim = fixture.cluster.add('PersistentVolumeClaim', podNameOf(_id), ownLabels('spec'));
  claim.spec = { resources: { requests: { storage: '1Gi' } } };
  resize(claim);
  const made = { class: 'default', pool: 'p', namespace: 'test', specHash: 'h', attempt: 1, tries: 1 };
  const volume = { pvcName: claim.metadata.name, pvcUid: claim.metadata.uid };
  const bound = { tenantId: 't1', sessionId: `s${ids}`, claimKey: `s/${_id}`, state: 'ready', volume } as const;
  await context.sandboxes.insert({ _id, podName: podNameOf(_id), ...made, ...bound, ...more });
  return { claim, ref: { sandboxId: _id } };
}

const consider = ({ sandboxId }: { sandboxId: string }, percent: number) =>
  growth.consider({ sandboxId, tenantId: 't1', sessionId: 's' }, percent);

it('grows by half at 80 %, and no further than its class says', async () => {
  const { claim, ref } = await sandbox();
  expect(await consider(ref, 79)).toBe(false);
  expect(await consider(ref, 80)).toBe(true);
  expect(sizeOf(claim)).toBe('1536Mi');
  resize(claim);
  now += MINUTE;
  expect(await consider(ref, 85)).toBe(true);
  expect(sizeOf(claim)).toBe('2048Mi');
  resize(claim);
  now += MINUTE;
  expect(await consider(ref, 99)).toBe(false);
  expect(sizeOf(claim)).toBe('2048Mi');
});

it('is not asked for again while it is under way', async () => {
  const { claim, ref } = await sandbox();
  await consider(ref, 90);
  expect(await consider(ref, 95)).toBe(false);
  now += MINUTE;
  expect(await consider(ref, 95)).toBe(false);
  expect(sizeOf(claim)).toBe('1536Mi');
});

it('is looked at twice a minute at most, whatever a sandbox says', async () => {
  const { claim, ref } = await sandbox();
  const { claim: other, ref: later } = await sandbox();
  await consider(ref, 90);
  resize(claim);
  now += 29_000;
  expect([await consider(ref, 90), await consider(later, 90)]).toEqual([false, true]);
  now += 1_000;
  expect(await consider(ref, 90)).toBe(true);
  expect([sizeOf(claim), sizeOf(other)]).toEqual(['2048Mi', '1536Mi']);
});

it('is left alone for an hour where the storage class cannot grow', async () => {
  const { claim, ref } = await sandbox();
  fixture.cluster.canGrow = false;
  expect(await consider(ref, 90)).toBe(false);
  fixture.cluster.canGrow = true;
  now += 59 * MINUTE;
  expect(await consider(ref, 90)).toBe(false);
  expect(sizeOf(claim)).toBe('1Gi');
  now += MINUTE;
  expect(await consider(ref, 90)).toBe(true);
});

it('is never that of another volume, of a sandbox that has ended, or of a class that has a fixed size', async () => {
  const other = await sandbox({ volume: { pvcName: podNameOf('f'.repeat(20)), pvcUid: 'gone' } });
  const ended = await sandbox({ state: 'released' });
  const fixed = await sandbox({ class: 'strict' });
  for (const { ref, claim } of [other, ended, fixed]) {
    expect(await consider(ref, 99)).toBe(false);
    expect(sizeOf(claim)).toBe('1Gi');
  }
});
