// Makes container images without a container engine, from this machine's own files:
//
//   node tools/images.mjs                        all of them, as OCI archives in dist/images
//   node tools/images.mjs margay --out FOLDER    one of them, somewhere else
//   node tools/images.mjs --built                of the bundles as they lie in dist
//   node tools/images.mjs --as 9.9.9             as if this were that version, to try upgrades with
//   node tools/images.mjs --rootfs NAME FOLDER   our files of one image alone, which the Dockerfile takes
//   node tools/images.mjs --folder FOLDER --name REFERENCE --entrypoint PATH --out FILE [--user UID:GID]
import { spawn } from 'node:child_process';
import { cp, mkdir, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { homedir, tmpdir } from 'node:os';
import { basename, join, resolve } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { progress, root, runCommand } from './prepare.mjs';

const cacheFolder = join(process.env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'margay/images');
const LAYER_LIFE_MS = 3 * 24 * 60 * 60_000;
const OPTIONS = {
  built: { type: 'boolean' },
  out: { type: 'string' },
  as: { type: 'string' },
  rootfs: { type: 'string' },
  folder: { type: 'string' },
  name: { type: 'string' },
  entrypoint: { type: 'string' },
  user: { type: 'string' },
};

async function main() {
  const { values, positionals } = parseArgs({ options: OPTIONS, allowPositionals: true });
  if (values.folder) return fromFolder(values);
  if (!values.built) await (await import('./build.mjs')).build(progress);
  if (values.rootfs) return writeRootfs(values.rootfs, positionals[0]);
  for (const { name, archive, digest, bytes } of await makeImages(positionals, values))
    console.log(`${name}  ${archive}  ${digest}  ${(bytes / 1e6).toFixed(1)} MB`);
  return 0;
}

/**
 * Writes the archives of the named images (default all) and answers `{ name, archive, digest, bytes }` for each. The
 * bundles must have been built. `as`: the version they say they are, in place of their own.
 */
export async function makeImages(names = [], { out = join(root, 'dist/images'), as, report = progress } = {}) {
  const { IMAGES } = await import('./images/definitions.ts');
  const unknown = names.filter((name) => !(name in IMAGES));
  if (unknown.length > 0)
    throw new Error(`no image ${unknown.join(', ')}; there are ${Object.keys(IMAGES).join(', ')}`);
  await mkdir(out, { recursive: true });
  const { version } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'));
  const staged = as === undefined ? undefined : await stageAs(version, as);
  const servers = await testServers(report);
  const context = { root: staged ?? root, version: as ?? version, cacheFolder, progress: report, ...servers };
  const made = [];
  for (const name of names.length > 0 ? names : Object.keys(IMAGES)) {
    report(`image ${name}${as === undefined ? '' : ` as ${as}`}`);
    made.push(await makeImage(await IMAGES[name](context), join(out, `${name}.tar`)));
  }
  if (staged) await rm(staged, { recursive: true });
  const { pruneLayers } = await import('./images/layers.ts');
  await pruneLayers(join(cacheFolder, 'layers'), new Date(Date.now() - LAYER_LIFE_MS));
  return made;
}

/** A folder with what images are made of, whose bundles say that they are of another version. */
async function stageAs(version, as) {
  const staged = await mkdtemp(join(tmpdir(), 'margay-images-'));
  for (const path of ['LICENSE', 'tools/images/sandbox-packages.txt']) await cp(join(root, path), join(staged, path));
  await mkdir(join(staged, 'dist'));
  const constant = new RegExp(`(\\bVERSION\\d* = )"${RegExp.escape(version)}"`, 'g');
  for (const name of ['margay.cjs', 'kubernetes-client.cjs', 'sandboxd.cjs', 'cli.cjs']) {
    const text = await readFile(join(root, 'dist', name), 'utf8');
    await writeFile(join(staged, 'dist', name), text.replace(constant, `$1"${as}"`), { mode: 0o755 });
  }
  return staged;
}

async function makeImage(image, archive) {
  const { storeLayer } = await import('./images/layers.ts');
  const { writeArchive } = await import('./images/oci-archive.ts');
  const layers = [];
  for (const layer of image.layers) layers.push(await storeLayer(layer, join(cacheFolder, 'layers')));
  const digest = await writeArchive(image, layers, archive);
  return { name: image.name, archive, digest, bytes: (await stat(archive)).size };
}

/** Binaries of the servers that stand in for official images; never a running one, which no image could hold. */
async function testServers(report) {
  const { ensureNats, ensureStore, launcherConfig, TEST_SOURCES } = await import('../libs/launcher/dist/index.js');
  const { natsUrl: _nats, mongodbUrl: _mongodb, ...config } = launcherConfig();
  // Its Python build is a folder of packages, not a program.
  const allow = TEST_SOURCES.filter((source) => source !== 'secantus-pypi');
  return {
    nats: async () => {
      const { binary, version } = await ensureNats({ progress: report, config });
      return { path: binary, version };
    },
    store: async () => {
      const { command, engine, version } = await ensureStore({ progress: report, config, allow });
      return { path: command.at(-1), engine, version };
    },
  };
}

async function writeRootfs(name, target) {
  const { ROOTFS } = await import('./images/definitions.ts');
  if (!(name in ROOTFS) || !target) throw new Error(`usage: --rootfs ${Object.keys(ROOTFS).join('|')} FOLDER`);
  const { complete } = await import('./images/entries.ts');
  const { tar } = await import('./images/tar.ts');
  await mkdir(target, { recursive: true });
  const child = spawn('tar', ['-x', '-C', target], { stdio: ['pipe', 'inherit', 'inherit'] });
  const ended = new Promise((done, fail) => child.once('error', fail).once('exit', done));
  await pipeline(Readable.from(tar(complete(ROOTFS[name](root)))), child.stdin);
  return (await ended) ?? 1;
}

async function fromFolder({ folder, name, entrypoint, user = '1000:1000', out }) {
  if (!name || !entrypoint || !out) throw new Error('--folder needs --name, --entrypoint and --out');
  const { tree } = await import('./images/entries.ts');
  const config = { User: user, Entrypoint: [entrypoint] };
  const made = await makeImage({ name, config, layers: [{ entries: tree(resolve(folder)) }] }, out);
  console.log(`${made.name}  ${basename(out)}  ${made.digest}`);
  return 0;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await runCommand(import.meta.url, main);
