import { ExecutorPods, type ExecutorClient } from './executor-pods';
import { ClusterHarness } from './harness';

jest.setTimeout(300_000);

const SMALL = {
  cpu: { request: '10m', limit: '1' },
  memory: { request: '48Mi', limit: '256Mi' },
  workspace: '64Mi',
  scratch: '64Mi',
  storage: 'snapshot',
  egress: 'none',
};
const NONE_WAITS = { min: 0, max: 0 };
const ONE_WAITS = { min: 1, max: 1 };

/** Under Pod Security `restricted`, as in every namespace of the harness. */
describe('classes of sandboxes', () => {
  const cluster = new ClusterHarness();
  let pods: ExecutorPods;
  let client: ExecutorClient;
  let metrics: () => Promise<string>;

  beforeAll(async () => {
    pods = await ExecutorPods.open(cluster, {
      default: { ...SMALL, warm: NONE_WAITS },
      strict: { ...SMALL, warm: ONE_WAITS },
      tools: { ...SMALL, image: cluster.image('plain'), warm: ONE_WAITS },
    });
    ({ client, metrics } = await pods.start('one'));
    await cluster.until('one of each class waits', async () => {
      for (const name of ['strict', 'tools'])
        expect(await metrics()).toContain(`margay_sandbox_pool{class="${name}",state="warm"} 1\n`);
    });
  });
  afterAll(async () => {
    await pods?.close();
    await cluster.stop();
  });

  const outputOf = async (sessionId: string, sandboxClass: string | undefined, command: string) =>
    (await pods.call(client, sessionId, { args: { command }, grant: sandboxClass ? { sandboxClass } : {} })).output;

  it('give an image without Node and without our daemon both, beside its own programs', async () => {
    const look = 'command -v node git sandboxd; ls /margay/program; echo $LD_LIBRARY_PATH';
    expect(await outputOf('own', 'tools', look)).toBe('lib\nnode\nsandboxd.cjs\ntini\n\n');
    expect(await outputOf('own', 'tools', 'echo kept > file; cat file; id -u')).toBe('kept\n1000\n');
    const tampered = await outputOf('own', 'tools', 'echo x >> /margay/program/sandboxd.cjs; echo $?');
    expect(tampered).toMatch(/Read-only file system[^]*1\n$/);
    // What commands leave behind is reaped there, too.
    const zombies =
      'for file in /proc/[0-9]*/status; do while read -r name value _; do ' +
      '[ "$name $value" = "State: Z" ] && echo zombie; done < $file; done 2>/dev/null';
    const orphans = `for i in 1 2 3; do (sleep 0.1 &); done; while [ -n "$(${zombies})" ]; do sleep 0.1; done; echo none`;
    expect(await outputOf('own', 'tools', orphans)).toBe('none\n');
    expect(await metrics()).toMatch(/margay_sandbox_claim_duration_seconds_count\{class="tools",path="warm"\} 1/);
  });

  it('have limits of their own, and a session that takes another one keeps its files', async () => {
    expect(await outputOf('moving', undefined, 'ulimit -n; echo kept > file')).toBe('1024\n');
    expect(await outputOf('moving', 'strict', 'ulimit -t; ulimit -f; ulimit -n; cat file')).toBe(
      '120\n65536\n256\nkept\n',
    );
    expect(await outputOf('moving', 'tools', 'cat file')).toBe('kept\n');
    await cluster.until('only the last one is left', async () => {
      const selector = 'margay.dev/session-id=moving';
      const columns = 'jsonpath={.items[*].metadata.labels.margay\\.dev/class}';
      expect(await cluster.kubectl(['-n', pods.boxes, 'get', 'pods', '-l', selector, '-o', columns])).toBe('tools');
    });
  });
});
