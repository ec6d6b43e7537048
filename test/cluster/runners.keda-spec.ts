import { ClusterHarness } from './harness';
import { Installation } from './installation';
import { LiveRuns } from './runs/live-runs';

jest.setTimeout(900_000);

/** Of a runner; the chart wants 80 % of them taken, so 3. */
const SLOTS = 4;
const RUNS = 9;

describe('runners scaled by KEDA', () => {
  const cluster = new ClusterHarness();
  let installation: Installation;

  beforeAll(async () => {
    const autoscaling = { driver: 'keda', minReplicas: 1, maxReplicas: 4 };
    const runner = { autoscaling, pools: [{ name: 'default', replicas: 1, slots: SLOTS }] };
    const keda = { namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': 'keda' } } };
    installation = await Installation.open(cluster, { runner, networkPolicy: { monitoringFrom: [keda] } });
  });
  afterAll(async () => {
    await installation?.close();
    await cluster.stop();
  });

  const reaches = (count: number, timeoutMs: number) =>
    installation.phase(`${count} runners`, () =>
      cluster.until(
        `${count} runners`,
        async () => expect(await installation.pods('agent-runner')).toHaveLength(count),
        timeoutMs,
      ),
    );

  it('follow the demand of live runs up and down, and no run fails', async () => {
    await cluster.waitFor(installation.namespace, 'scaledobject/margay-agent-runner', 'condition=Ready', 120);
    const queued = LiveRuns.begin(installation, 'keda', RUNS);
    await reaches(3, 180_000);
    await queued.areLive();
    // The chart waits five minutes and takes a pod a minute; nobody wants to wait for that here.
    const quick = {
      scaleDown: { stabilizationWindowSeconds: 0, policies: [{ type: 'Pods', value: 4, periodSeconds: 15 }] },
    };
    const patch = { spec: { advanced: { horizontalPodAutoscalerConfig: { behavior: quick } } } };
    const target = ['-n', installation.namespace, 'patch', 'scaledobject/margay-agent-runner', '--type=merge'];
    await cluster.kubectl([...target, '-p', JSON.stringify(patch)]);
    expect(await queued.end()).toEqual([]);
    await reaches(1, 180_000);
  });
});
