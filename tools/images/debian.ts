// A root file system of Debian packages without installing any: apt resolves, fetches and verifies, and the packages
// are only unpacked. It needs no root and runs none of their scripts; what those would have made is made here.
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { link, SKELETON, tree, type Entry } from './entries.ts';
import { sha256, type Layer } from './layers.ts';

const run = promisify(execFile);
/** Pulled in by others and of no use in an image: packages there are fixed. */
const UNWANTED = ['dpkg', 'debconf'];
/** What the packages' scripts would have linked. */
const ALTERNATIVES = {
  awk: 'mawk',
  nawk: 'mawk',
  cc: 'gcc',
  'c++': 'g++',
  pager: 'less',
  which: 'which.debianutils',
  python: 'python3',
};
const WITHOUT =
  /^usr\/share\/(man|info|locale|lintian|bug|doc-base|i18n)(\/|$)|^usr\/share\/doc\/[^/]+\/(?!copyright$)|^var\/(cache|lib)\/./;

/** Its key is the list of packages with their versions. */
export async function debianLayer(
  packages: readonly string[],
  cacheFolder: string,
  progress: (line: string) => void,
): Promise<Layer> {
  const folder = join(cacheFolder, 'debian');
  const archives = await listArchives(folder, packages);
  return {
    key: `debian ${sha256(JSON.stringify([archives, ALTERNATIVES, String(WITHOUT), SKELETON]))}`,
    withEntries: async (write) => {
      progress(`fetching and unpacking ${archives.length} Debian packages`);
      await apt(folder, 'archives', ['--download-only', 'install', ...packages]);
      const written = await unpacked(
        archives.map((name) => join(folder, 'archives', name)),
        write,
      );
      await rm(join(folder, 'archives'), { recursive: true, force: true });
      return written;
    },
  };
}

/** Names of the archives of these packages and of all that they depend on. */
async function listArchives(folder: string, packages: readonly string[]): Promise<string[]> {
  // apt lists what it would fetch, which is not what lies there already: it looks into a folder where nothing does.
  const listed = await apt(folder, 'none', ['--print-uris', 'install', ...packages]);
  const names = [...listed.matchAll(/^'.*' (\S+\.deb) /gm)].map(([, name]) => name ?? '').sort();
  const missing = packages.filter((name) => !names.some((archive) => archive.startsWith(`${name}_`)));
  if (missing.length > 0) throw new Error(`apt resolved the sandbox's packages without ${missing.join(', ')}`);
  return names.filter((name) => !UNWANTED.includes(name.slice(0, name.indexOf('_'))));
}

async function apt(folder: string, archives: string, args: readonly string[]): Promise<string> {
  await mkdir(join(folder, archives, 'partial'), { recursive: true });
  await writeFile(join(folder, 'status'), ''); // nothing is installed: all that is needed has to come
  const options = {
    'Dir::State::status': join(folder, 'status'),
    'Dir::Cache::archives': join(folder, archives),
    'Debug::NoLocking': '1',
    'APT::Install-Recommends': 'false',
    'APT::Sandbox::User': 'root', // the cache may lie where apt's own user has no access
  };
  const flags = Object.entries(options).flatMap(([name, value]) => ['-o', `${name}=${value}`]);
  try {
    return (await run('apt-get', ['--yes', '--quiet', ...flags, ...args], { maxBuffer: 1 << 26 })).stdout;
  } catch (cause) {
    const hint = 'This image is made of Debian packages: run apt-get update, or build it with the Dockerfile.';
    throw new Error(`${hint}\n${cause instanceof Error ? cause.message : String(cause)}`, { cause });
  }
}

/** What is there already as a link stays one: packages of Debian 12 still name /bin and /lib. */
const UNPACK = 'dpkg-deb --fsys-tarfile "$1" | tar -x --keep-directory-symlink -C "$2"';

/** Unpacks into a folder that is gone when `write` is done with its entries. */
async function unpacked<T>(archives: readonly string[], write: (entries: readonly Entry[]) => Promise<T>): Promise<T> {
  const root = await mkdtemp(join(tmpdir(), 'margay-image-'));
  try {
    for (const entry of SKELETON) {
      if (entry.kind === 'link') await symlink(entry.target, join(root, entry.path));
      else await mkdir(join(root, entry.path), { recursive: true });
    }
    for (const archive of archives) await run('sh', ['-c', UNPACK, 'sh', archive, root]);
    return await write([...tree(root, (path) => !WITHOUT.test(path)), ...alternatives(root), ...SKELETON]);
  } finally {
    await rm(root, { recursive: true, force: true });
  }
}

const alternatives = (root: string): Entry[] =>
  Object.entries(ALTERNATIVES)
    .filter(([name, target]) => !existsSync(join(root, 'usr/bin', name)) && existsSync(join(root, 'usr/bin', target)))
    .map(([name, target]) => link(`usr/bin/${name}`, target));
