// Compiles what `npm start` needs and bundles it: dist/margay.cjs, dist/sandboxd.cjs, dist/cli.cjs.
// Skipped when no source, manifest or setting has changed since the last build. Only Node's own modules at the top:
// start.mjs imports this file before any package is installed.
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
const dist = join(root, 'dist');
const record = join(dist, 'build.json');

const PROJECTS = ['services/margay', 'services/sandboxd', 'libs/cli', 'libs/launcher'];
const BUNDLES = {
  'margay.cjs': 'services/margay/dist/main.js',
  'sandboxd.cjs': 'services/sandboxd/dist/main.js',
  'cli.cjs': 'libs/cli/dist/main.js',
  // Larger than all of Margay, and only for clusters: a file of its own, read when it is asked for.
  'kubernetes-client.cjs': 'node_modules/@kubernetes/client-node/dist/index.js',
};

const kubernetesApart = {
  name: 'the Kubernetes client lies beside the bundle',
  setup: ({ onResolve }) =>
    onResolve({ filter: /^@kubernetes\/client-node$/ }, () => ({ path: './kubernetes-client.cjs', external: true })),
};

// Optional peers that their owners load only when they are installed.
const EXTERNAL = [
  '@nestjs/websockets',
  '@nestjs/websockets/socket-module',
  '@nestjs/microservices',
  '@nestjs/microservices/*',
  '@nestjs/platform-express',
  'class-validator',
  'class-transformer',
  'class-transformer/storage',
  '@fastify/static',
  '@fastify/view',
  '@fastify/multipart',
  '@nats-io/transport-node',
  'cache-manager',
  'ioredis',
  'mqtt',
  'kafkajs',
  'amqplib',
  'amqp-connection-manager',
  'mongodb-client-encryption',
  'kerberos',
  '@mongodb-js/zstd',
  'snappy',
  'aws4',
  'gcp-metadata',
  '@aws-sdk/credential-providers',
];

/** Builds unless nothing changed; `progress` gets a line per step. Returns whether there was something to do. */
export async function build(progress = () => {}) {
  const sources = await sourceHash();
  if (await isUpToDate(sources)) return false;
  await rm(record, { force: true });
  progress('compiling');
  await run(['node_modules/tsnative/bin/tsc', '-b', ...PROJECTS]);
  progress('bundling');
  await bundle();
  await writeFile(record, JSON.stringify({ sources }));
  return true;
}

async function isUpToDate(sources) {
  if (!Object.keys(BUNDLES).every((name) => existsSync(join(dist, name)))) return false;
  if (!existsSync(join(root, 'libs/launcher/dist/index.js'))) return false;
  try {
    return JSON.parse(await readFile(record, 'utf8')).sources === sources;
  } catch {
    return false; // no record, or one cut short: build
  }
}

async function bundle() {
  const { build: esbuild } = await import('esbuild');
  const draft = join(dist, `.draft-${process.pid}`);
  await mkdir(draft, { recursive: true });
  try {
    // From compiled files, never from sources: esbuild emits no decorator metadata.
    await Promise.all(
      Object.entries(BUNDLES).map(([name, entry]) =>
        esbuild({
          entryPoints: [join(root, entry)],
          outfile: join(draft, name),
          bundle: true,
          platform: 'node',
          target: 'node24',
          format: 'cjs',
          logLevel: 'error',
          define: { 'import.meta.url': '__bundleUrl' },
          banner: { js: "const __bundleUrl = require('node:url').pathToFileURL(__filename).href;" },
          external: EXTERNAL,
          plugins: [kubernetesApart],
        }),
      ),
    );
    for (const name of Object.keys(BUNDLES)) await rename(join(draft, name), join(dist, name));
  } finally {
    await rm(draft, { recursive: true, force: true });
  }
}

async function sourceHash() {
  const files = [
    'package-lock.json',
    'tsconfig.base.json',
    relative(root, fileURLToPath(import.meta.url)),
    ...(await projectFiles('libs')),
    ...(await projectFiles('services')),
  ];
  const hash = createHash('sha256');
  const contents = await Promise.all(files.map((file) => readFile(join(root, file))));
  files.forEach((file, index) => hash.update(`${file}\0${contents[index].length}\0`).update(contents[index]));
  return hash.digest('hex');
}

/** Sources and manifests of all projects below a folder, without tests. */
async function projectFiles(parent) {
  const files = [];
  for (const project of (await readdir(join(root, parent))).sort()) {
    const folder = join(parent, project);
    for (const name of ['package.json', 'tsconfig.json'])
      if (existsSync(join(root, folder, name))) files.push(join(folder, name));
    if (!existsSync(join(root, folder, 'src'))) continue;
    const sources = await readdir(join(root, folder, 'src'), { recursive: true });
    files.push(
      ...sources
        .filter((name) => isSource(name))
        .map((name) => join(folder, 'src', name))
        .sort(),
    );
  }
  return files;
}

function isSource(name) {
  return /\.tsx?$/.test(name) && !/\.(int-|e2e-)?spec\.tsx?$/.test(name);
}

function run(args) {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, args, { cwd: root, stdio: ['ignore', 'inherit', 'inherit'] });
    child.once('error', reject);
    child.once('exit', (code) => (code === 0 ? resolve() : reject(new Error(`${args.join(' ')} failed`))));
  });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const started = performance.now();
  try {
    const built = await build((line) => console.log(line));
    console.log(built ? `built in ${((performance.now() - started) / 1000).toFixed(1)} s` : 'nothing has changed');
  } catch (error) {
    console.error(`build failed: ${error.message}`);
    process.exitCode = 1;
  }
}
