// `npm run test:cluster`: starts a real single-node Kubernetes on this machine, gives it our images, runs
// test/cluster/**/*.cluster-spec.ts and removes all of it again. `npm run test:cluster -- PATTERN…` runs the files that
// match, `-- --again` runs files with failures once more, and `-- --build` only builds what the cluster is made of, which
// takes minutes the first time. MARGAY_TEST_CLUSTER=existing takes the cluster of KUBECONFIG instead. Where it cannot run
// it prints `SKIP cluster: <reason>` and nothing else; see docs/cluster-tests.md.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { report, runJest } from './jest.mjs';
import { progress, root, runCommand, SIGNALS } from './prepare.mjs';

const scripts = join(root, 'tools/testcluster');
/** Commands that run now. */
const children = new Set();
const withKeda = process.argv.includes('--keda');
const OWN_CLUSTER = /^margay-test-(\d+)$/;

await runCommand(import.meta.url, main);

async function main() {
  const isExisting = process.env.MARGAY_TEST_CLUSTER === 'existing';
  const reason = isExisting ? await noUsableKubeconfig() : await machineCannot();
  if (reason) return skip(reason);
  if (process.argv.includes('--build')) return buildCluster();
  const folder = await mkdtemp(join(tmpdir(), 'margay-cluster-'));
  const cluster = isExisting ? existingCluster() : await ownCluster(folder);
  let stopped;
  const stop = () => (stopped ??= cluster.stop().finally(() => rm(folder, { recursive: true, force: true })));
  const interrupt = async () => {
    await endChildren(); // else up.sh would go on while down.sh takes everything away
    await stop();
    process.exit(130);
  };
  for (const signal of SIGNALS) process.once(signal, () => void interrupt());
  try {
    return await runSpecs(await cluster.start());
  } finally {
    await stop();
  }
}

/** One line on standard output; a failure where MARGAY_REQUIRE asks for a cluster. */
function skip(reason) {
  console.log(`SKIP cluster: ${reason}`);
  const isRequired = (process.env.MARGAY_REQUIRE ?? '').split(',').includes('cluster');
  return isRequired ? 1 : 0;
}

async function noUsableKubeconfig() {
  if (!process.env.KUBECONFIG) return 'MARGAY_TEST_CLUSTER=existing needs KUBECONFIG';
  const binary = await builtBinary();
  const command = binary ? [binary, 'kubectl'] : ['kubectl'];
  const { code, output } = await run([...command, 'get', '--raw', '/readyz', '--request-timeout=10s']);
  return code === 0 ? undefined : `the cluster of KUBECONFIG does not answer: ${lastLine(output)}`;
}

/** Installs what is missing where that is possible, and asks the doctor. */
async function machineCannot() {
  if (process.platform !== 'linux') return `needs Linux, and this is ${process.platform}`;
  const before = await run([join(scripts, 'doctor.sh')]);
  if (before.code === 0) return undefined;
  if (!before.output.includes('install.sh')) return lastLine(before.output);
  progress('installing the packages of the test cluster');
  const { code, output } = await run([join(scripts, 'install.sh')]);
  if (code !== 0) return `its packages could not be installed: ${lastLine(output)}`;
  const after = await run([join(scripts, 'doctor.sh')]);
  return after.code === 0 ? undefined : lastLine(after.output);
}

async function buildCluster() {
  const { code } = await run([join(scripts, 'build.sh')], { isShown: true });
  return code;
}

function existingCluster() {
  return {
    start: async () => ({ ...process.env, MARGAY_TEST_CLUSTER_BINARY: await builtBinary() }),
    stop: async () => undefined,
  };
}

/** A cluster of this process's own name and port. */
async function ownCluster(folder) {
  await removeOrphans();
  const name = `test-${process.pid}`;
  const port = String(await freePort());
  const own = { MARGAY_CLUSTER_NAME: name, MARGAY_CLUSTER_PORT: port, MARGAY_CLUSTER_METRICS: '1' };
  const env = { ...process.env, ...own };
  const script = async (file, ...args) => {
    const { code, output, stdout } = await run([join(scripts, file), ...args], { env, isShown: true });
    if (code !== 0) throw new Error(`${file} failed: ${output.trim()}`);
    return stdout.trim();
  };
  return {
    start: async () => {
      await script('build.sh');
      await (await import('./build.mjs')).build(progress);
      const { makeImages } = await import('./images.mjs');
      const next = nextVersion(await ownVersion());
      const images = await makeImages([], { out: folder });
      images.push(...(await makeImages(['margay'], { out: join(folder, 'next'), as: next })));
      if (withKeda) await script('keda/build.sh');
      const kubeconfig = await script('up.sh');
      if (withKeda) await script('keda/up.sh');
      await script('import.sh', ...images.map(({ archive }) => archive));
      return {
        ...env,
        MARGAY_TEST_NEXT_VERSION: next,
        KUBECONFIG: kubeconfig,
        MARGAY_TEST_CLUSTER_BINARY: await builtBinary(),
        MARGAY_TEST_AUDIT_LOG: `/var/lib/margay-${name}/log/audit.log`,
      };
    },
    stop: () => script('down.sh'),
  };
}

/** What a run that was killed could not remove; its process says whose it is. */
async function removeOrphans() {
  if (!existsSync('/run/netns')) return;
  for (const entry of await readdir('/run/netns')) {
    const pid = OWN_CLUSTER.exec(entry)?.[1];
    if (!pid || existsSync(`/proc/${pid}`)) continue;
    progress(`removing the cluster of an earlier run (${entry})`);
    const env = { ...process.env, MARGAY_CLUSTER_NAME: entry.slice('margay-'.length) };
    await run([join(scripts, 'down.sh')], { env });
  }
}

async function runSpecs(env) {
  const own = ['--keda', '--again'];
  const patterns = process.argv.slice(2).filter((argument) => !own.includes(argument));
  const flags = [
    ...['--runInBand', '--globalSetup', './test/cluster/setup.cjs'],
    ...['--testMatch', `<rootDir>/test/cluster/**/*.${withKeda ? 'keda' : 'cluster'}-spec.ts`],
  ];
  // One machine is a whole cluster here, with its clocks: hence `--again`.
  const isAgain = process.argv.includes('--again');
  return report(
    await runJest(patterns, flags, { env: { ...env, MARGAY_TEST_VERSION: await ownVersion() }, isAgain, start }),
  );
}

async function ownVersion() {
  return JSON.parse(await readFile(join(root, 'package.json'), 'utf8')).version;
}

/** The minor version after it, which an upgrade goes to. */
function nextVersion(version) {
  const [major, minor] = version.split('.').map(Number);
  return `${major}.${minor + 1}.0`;
}

async function builtBinary() {
  const ask = '. "$1" && [ -x "$BINARY" ] && echo "$BINARY"';
  const { code, stdout } = await run(['bash', '-c', ask, 'bash', join(scripts, 'settings.sh')]);
  return code === 0 ? stdout.trim() : undefined;
}

async function freePort() {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  await new Promise((done) => server.close(done));
  return port;
}

/** `output` is both streams; what a shown command writes to standard error is passed on as it comes. */
async function run([program, ...args], { env = process.env, isShown = false } = {}) {
  const child = start(program, args, { env, stdio: ['ignore', 'pipe', 'pipe'] });
  let stdout = '';
  let output = '';
  child.stdout.on('data', (chunk) => {
    stdout += chunk;
    output += chunk;
  });
  child.stderr.on('data', (chunk) => {
    output += chunk;
    if (isShown) process.stderr.write(chunk);
  });
  const code = await new Promise((resolve) => child.once('error', () => resolve(127)).once('close', resolve));
  return { code, stdout, output };
}

function start(program, args, options) {
  const child = spawn(program, args, options);
  children.add(child);
  child.once('close', () => children.delete(child));
  return child;
}

async function endChildren() {
  const ending = [...children].map((child) => once(child, 'close'));
  for (const child of children) child.kill();
  await Promise.all(ending);
}

function lastLine(output) {
  return output.trim().split('\n').at(-1);
}
