// `npm run test:s3`: the suite of the object store against a real server, VersityGW (github.com/versity/versitygw), which is
// built with Go once per state of `tools/s3`. Where it can't be had this prints `SKIP s3: <reason>`.
import { spawn } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { access, mkdir, mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { report, runJest } from './jest.mjs';
import { progress, root, runCommand, SIGNALS } from './prepare.mjs';

const BUCKET = 'margay';
const START_MS = 60_000;

await runCommand(import.meta.url, main);

async function main() {
  const program = await findServer();
  if (!program) return skip('there is no Go to build the server with');
  if (process.argv.includes('--build')) return 0;
  const folder = await mkdtemp(join(tmpdir(), 'margay-s3-'));
  let server;
  const stop = async () => {
    if (server?.exitCode === null && server.kill()) await once(server, 'exit');
    await rm(folder, { recursive: true, force: true });
  };
  for (const signal of SIGNALS) process.once(signal, () => void stop().finally(() => process.exit(130)));
  try {
    const at = { endpoint: '', bucket: BUCKET, accessKeyId: 'spec', secretAccessKey: randomBytes(16).toString('hex') };
    const port = await freePort();
    at.endpoint = `http://127.0.0.1:${port}`;
    server = await start(program, folder, port, at);
    const env = { ...process.env, MARGAY_TEST_BUCKET: JSON.stringify(at) };
    const patterns = ['libs/platform/src/files/s3-objects', 'services/tool-executor/src/snapshots/archive-store'];
    return report(await runJest(patterns, ['--runInBand', '--testMatch', '<rootDir>/**/*.int-spec.ts'], { env }));
  } finally {
    await stop();
  }
}

/** One line on standard output; a failure where MARGAY_REQUIRE asks for these tests. */
function skip(reason) {
  process.stdout.write(`SKIP s3: ${reason}\n`);
  return (process.env.MARGAY_REQUIRE ?? '').split(',').includes('s3') ? 1 : 0;
}

/** @returns its path; undefined where it is not there and can't be built for want of Go */
async function findServer() {
  const { buildInCache, cache, hasGo } = await import('./chart/go.mjs');
  const source = join(root, 'tools/s3');
  const hash = createHash('sha256');
  for (const name of (await readdir(source)).sort()) hash.update(await readFile(join(source, name)));
  const name = `versitygw-${hash.digest('hex').slice(0, 16)}`;
  const program = join(cache, name, 'versitygw');
  try {
    await access(program);
    return program;
  } catch {
    if (!(await hasGo())) return undefined;
  }
  progress('building an S3 server with Go, one to three minutes (once)');
  const module = 'github.com/versity/versitygw/cmd/versitygw';
  const command = (folder) => ['build', '-trimpath', '-ldflags', '-s -w', '-o', join(folder, 'versitygw'), module];
  await buildInCache(name, command, { cwd: source });
  return program;
}

/** A bucket is a folder; what files can't say of objects stands in files of its own. */
async function start(program, folder, port, { accessKeyId, secretAccessKey }) {
  await mkdir(join(folder, 'buckets', BUCKET), { recursive: true });
  await mkdir(join(folder, 'notes'));
  const args = [
    '--port',
    `127.0.0.1:${port}`,
    '--quiet',
    'posix',
    '--sidecar',
    join(folder, 'notes'),
    join(folder, 'buckets'),
  ];
  const env = { ...process.env, ROOT_ACCESS_KEY_ID: accessKeyId, ROOT_SECRET_ACCESS_KEY: secretAccessKey };
  const server = spawn(program, args, { env, stdio: ['ignore', 2, 2] });
  const until = Date.now() + START_MS;
  while (!(await answers(port))) {
    if (server.exitCode !== null) throw new Error('the S3 server ended at once; see above');
    if (Date.now() > until) throw new Error('the S3 server does not answer');
    await pause(100);
  }
  return server;
}

/** Whatever it says: it speaks. */
function answers(port) {
  return fetch(`http://127.0.0.1:${port}/`).then(
    () => true,
    () => false,
  );
}

async function freePort() {
  const probe = createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const { port } = probe.address();
  probe.close();
  await once(probe, 'close');
  return port;
}
