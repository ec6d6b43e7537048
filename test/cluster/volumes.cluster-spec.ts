import { ExecutorPods, type ExecutorClient } from './executor-pods';
import { describeWith } from './features';
import { ClusterHarness } from './harness';

jest.setTimeout(300_000);

const MEBIBYTE = 1024 ** 2;
const CLASS = {
  cpu: { request: '50m', limit: '1' },
  memory: { request: '64Mi', limit: '512Mi' },
  workspace: '64Mi',
  // Where volumes are folders of one disk, it is this that is full or not.
  maxWorkspace: '80Mi',
  scratch: '256Mi',
  storage: 'volume',
  egress: 'none',
  warm: { min: 0, max: 0 },
};

interface VolumeClaim {
  spec: { resources: { requests: { storage: string } } };
}

describeWith('volumes')('a volume that fills up', () => {
  const cluster = new ClusterHarness();
  let pods: ExecutorPods;
  let client: ExecutorClient;
  let expandable: string;

  beforeAll(async () => {
    const usual = JSON.parse(await cluster.kubectl(['get', 'storageclass', '-o', 'json'])) as {
      items: { provisioner: string; volumeBindingMode?: string }[];
    };
    const { provisioner = '', volumeBindingMode } = usual.items[0] ?? {};
    const own = await cluster.namespace('growing');
    expandable = own;
    await cluster.apply({
      apiVersion: 'storage.k8s.io/v1',
      kind: 'StorageClass',
      metadata: { name: expandable },
      provisioner,
      volumeBindingMode,
      allowVolumeExpansion: true,
    });
    pods = await ExecutorPods.open(cluster, { default: { ...CLASS, storageClass: expandable } });
    ({ client } = await pods.start('one'));
  });
  afterAll(async () => {
    await pods?.close();
    if (expandable) await cluster.kubectl(['delete', 'storageclass', expandable, '--ignore-not-found']);
    await cluster.stop();
  });

  it('is asked for in a larger size, up to that of its class, while commands run there', async () => {
    expect((await pods.shell(client, 'grows1', 'echo begun')).output).toBe('begun\n');
    const requested = async () => {
      const { items } = await cluster.get<{ items: VolumeClaim[] }>(pods.boxes, 'pvc');
      return items.map(({ spec }) => spec.resources.requests.storage);
    };
    expect(await requested()).toEqual(['64Mi']);
    const filled = Math.round(0.85 * 80);
    await pods.shell(client, 'grows1', `head -c ${filled * MEBIBYTE} /dev/zero > file; sleep 6`);
    await cluster.until('it is larger', async () => expect(await requested()).toEqual(['80Mi']), 120_000);
  });
});
