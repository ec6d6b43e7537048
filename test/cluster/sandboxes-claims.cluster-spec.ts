import { setTimeout as sleep } from 'node:timers/promises';
import { ExecutorPods, type ExecutorClient } from './executor-pods';
import { ClusterHarness } from './harness';

jest.setTimeout(300_000);

const WAITING = 10;
const ROUNDS = 4;
/** Those that are claimed meanwhile are replaced afterwards, so that starts of pods are not measured. */
const POOL_SECONDS = 5;

/** How long a session waits for its first result, in the network of the cluster. */
describe('claims of waiting sandboxes', () => {
  const cluster = new ClusterHarness();
  let pods: ExecutorPods;
  let client: ExecutorClient;
  let metrics: () => Promise<string>;
  const warm = { min: WAITING, max: WAITING };

  beforeAll(async () => {
    const kind = { workspace: '64Mi', scratch: '64Mi', storage: 'volume', egress: 'none', warm };
    const resources = { cpu: { request: '10m', limit: '1' }, memory: { request: '48Mi', limit: '256Mi' } };
    pods = await ExecutorPods.open(cluster, { default: { ...kind, ...resources } });
    ({ client, metrics } = await pods.start('one', { MARGAY_SANDBOX_POOL_SECONDS: String(POOL_SECONDS) }));
  });
  afterAll(async () => {
    await pods?.close();
    await cluster.stop();
  });

  const allWait = () =>
    cluster.until(
      'all wait',
      async () => {
        // Some that are on their way out may still be seen.
        expect((await pods.waiting()).length).toBeGreaterThanOrEqual(WAITING);
        expect(await metrics()).toContain(`margay_sandbox_pool{class="default",state="warm"} ${WAITING}\n`);
      },
      120_000,
    );

  it(`${WAITING * ROUNDS} sessions get their first result at once, each from a sandbox that waited`, async () => {
    const first: number[] = [];
    const second: number[] = [];
    const timed = async (times: number[], sessionId: string) => {
      const startedAt = performance.now();
      const heard = await pods.shell(client, sessionId, 'echo hello');
      times.push(performance.now() - startedAt);
      expect(heard.output).toBe('hello\n');
    };
    for (let round = 0; round < ROUNDS; round += 1) {
      await allWait();
      for (let turn = 0; turn < WAITING; turn += 1)
        for (const times of [first, second]) await timed(times, `claim${round}x${turn}`);
      // By then they are counted anew.
      await sleep(POOL_SECONDS * 1_000);
      await Promise.all(Array.from({ length: WAITING }, (_, turn) => pods.end(client, `claim${round}x${turn}`)));
    }
    expect(await metrics()).toMatch(
      new RegExp(`claim_duration_seconds_count\\{[^}]*path="warm"\\} ${WAITING * ROUNDS}\n`),
    );
    const sum = /margay_sandbox_claim_duration_seconds_sum\{[^}]*path="warm"\} (\S+)/.exec(await metrics())?.[1];
    process.stderr.write(
      `[cluster] warm claim -> first result: ${spread(first)}; a second result: ${spread(second)}; ` +
        `the claim itself ${Math.round((1_000 * Number(sum)) / first.length)} ms on average\n`,
    );
  });
});

function spread(times: readonly number[]): string {
  const sorted = [...times].sort((a, b) => a - b);
  const at = (share: number) => Math.round(sorted[Math.ceil(sorted.length * share) - 1] ?? 0);
  return `p50 ${at(0.5)} ms, p99 ${at(0.99)} ms of ${sorted.length}`;
}
