import { ExecutorPods, type ExecutorClient } from './executor-pods';
import { ClusterHarness } from './harness';

jest.setTimeout(120_000);

const CLASS = {
  cpu: { request: '50m', limit: '1' },
  memory: { request: '64Mi', limit: '512Mi' },
  workspace: '256Mi',
  scratch: '256Mi',
  egress: 'none',
  warm: { min: 0, max: 0 },
};
/** Some seconds in days, and the time between looks. */
const SLEEPY = { MARGAY_WORKSPACES_DORMANT_DAYS: '0.0001', MARGAY_WORKSPACE_SWEEP_SECONDS: '1' };
const MAKE_FILES =
  'mkdir -p deep/er; head -c 300000 /dev/urandom > deep/er/noise; echo "a b" > "deep/a b"; chmod 640 "deep/a b"; chmod 700 deep/er; ln -s deep/er/noise link; mkfifo pipe';
const LIST_FILES =
  'find . -mindepth 1 ! -type p -printf "%p %y %m %s %l\\n" | sort; find . -type f -print0 | sort -z | xargs -0 sha256sum';
const cluster = new ClusterHarness();
const opened: ExecutorPods[] = [];
afterAll(async () => {
  for (const pods of opened) await pods.close();
  await cluster.stop();
});

async function open(storage: 'volume' | 'snapshot'): Promise<ExecutorPods> {
  const pods = await ExecutorPods.open(cluster, { default: { ...CLASS, storage } });
  opened.push(pods);
  return pods;
}

async function podOf(pods: ExecutorPods, sessionId: string): Promise<string> {
  const names = (await pods.labelled(sessionId)).filter((name) => name.startsWith('pod/'));
  return (names[0] ?? '').slice('pod/'.length);
}

async function gone(pods: ExecutorPods, sessionId: string): Promise<void> {
  await cluster.until(`nothing of ${sessionId} is left`, async () =>
    expect((await pods.labelled(sessionId)).filter((name) => name.startsWith('pod/'))).toEqual([]),
  );
}

describe('sandboxes whose files end with their pods', () => {
  let pods: ExecutorPods;
  let client: ExecutorClient;
  let metrics: () => Promise<string>;
  beforeAll(async () => {
    pods = await open('snapshot');
    ({ client, metrics } = await pods.start('one'));
  });

  it('pain 28: a pod deleted in mid-command is lost, the workspace restored, and the session goes on', async () => {
    await pods.shell(client, 'lost1', 'echo one > file; chmod 600 file');
    const end = { sessionId: 'lost1', epoch: 1, kill: false, background: false };
    await client.fenceSession(end, pods.principal);
    await cluster.until('the run is archived', async () =>
      expect(await metrics()).toMatch(/workspace_snapshot_duration_seconds_count\{kind="full"\} 1/),
    );
    const running = pods.shell(client, 'lost1', 'echo up > up; sleep 60');
    await cluster.until('it runs', async () =>
      expect((await pods.shell(client, 'lost1', 'cat up')).output).toBe('up\n'),
    );
    const pod = await podOf(pods, 'lost1');
    await cluster.kubectl(['-n', pods.boxes, 'delete', 'pod', pod, '--grace-period=0', '--force', '--wait=false']);
    expect((await running).finished).toMatchObject({ status: 'unknown', limitHit: 'restart' });
    const after = await pods.shell(client, 'lost1', 'cat file; stat -c %a file; ls');
    expect(after.output).toBe('one\n600\nfile\n');
    const notices = [...(await running).notices, ...after.notices];
    expect(notices).toMatchObject([
      { type: 'workspace_restored', payload: { snapshot_id: expect.stringMatching(/^[0-9a-f]{32}\/1$/) } },
    ]);
    expect(await podOf(pods, 'lost1')).not.toBe(pod);
    expect(await metrics()).toMatch(/sandbox_claim_duration_seconds_count\{class="default",path="restore"\} 1/);
  });

  it('a second session of a project forks what the first one has', async () => {
    const workspace = { kind: 'project' as const, projectId: 'a'.repeat(32) };
    const shell = (sessionId: string, command: string) =>
      pods.call(client, sessionId, { args: { command }, grant: { workspace } });
    await shell('fork1', 'echo shared > file');
    const second = await shell('fork2', 'cat file; echo mine > file; cat file');
    expect(second.output).toBe('shared\nmine\n');
    expect(second.notices).toMatchObject([{ type: 'workspace_forked' }]);
    expect((await shell('fork1', 'cat file')).output).toBe('shared\n');
  });

  it('a pod that is told to leave is archived first, and the next one begins with that', async () => {
    await pods.shell(client, 'left1', 'echo early > file');
    const pod = await podOf(pods, 'left1');
    const last = pods.shell(client, 'left1', 'echo up > up; sleep 3; echo late > late');
    await cluster.until('it runs', async () =>
      expect((await pods.shell(client, 'left1', 'cat up')).output).toBe('up\n'),
    );
    await cluster.kubectl(['-n', pods.boxes, 'delete', 'pod', pod, '--wait=false']);
    expect((await last).finished).toMatchObject({ status: 'ok' });
    const next = await pods.shell(client, 'left1', 'cat file late');
    expect(next.output).toBe('early\nlate\n');
    expect(next.notices).toEqual([]);
    expect(await podOf(pods, 'left1')).not.toBe(pod);
  });
});

describe('a volume that nobody uses', () => {
  it('sleeps as an archive, its claim goes, and it wakes equal by hash and mode', async () => {
    const pods = await open('volume');
    const { client } = await pods.start('sleepy', SLEEPY);
    const { output: before } = await pods.shell(client, 'sleep1', `${MAKE_FILES}; ${LIST_FILES}`);
    expect(before).toContain('noise');
    await pods.end(client, 'sleep1');
    await gone(pods, 'sleep1');
    const claims = () => cluster.kubectl(['-n', pods.boxes, 'get', 'persistentvolumeclaims', '-o', 'name']);
    await cluster.until('its claim is gone', async () => expect(await claims()).toBe(''), 90_000);
    const after = await pods.shell(client, 'sleep1', LIST_FILES);
    expect(after.output).toBe(before);
    expect((await claims()).trim().split('\n')).toHaveLength(1);
  });
});
