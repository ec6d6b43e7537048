// What a layer of an image holds: entries with paths relative to its root, without `./`.
import { existsSync, lstatSync, readdirSync, readlinkSync, realpathSync, statSync, type Stats } from 'node:fs';
import { basename, dirname, join } from 'node:path';

interface Common {
  path: string;
  mode: number;
  uid: number;
  gid: number;
}
export type Entry = Common &
  (
    | { kind: 'folder' }
    /** A symbolic link. */
    | { kind: 'link'; target: string }
    /** One more name of a file of this layer. */
    | { kind: 'twin'; target: string }
    | { kind: 'file'; content: string }
    /** Its bytes are read when the layer is written. */
    | { kind: 'file'; content?: undefined; source: string; size: number }
  );

const ROOT = { uid: 0, gid: 0 };
/** The user of all images. */
export const USER = { uid: 1000, gid: 1000 };

export const folder = (path: string, mode = 0o755, owner = ROOT): Entry => ({ path, kind: 'folder', mode, ...owner });
export const link = (path: string, target: string): Entry => ({ path, kind: 'link', mode: 0o777, ...ROOT, target });
export const text = (path: string, content: string, mode = 0o644): Entry => ({
  ...{ path, kind: 'file', mode, ...ROOT },
  content,
});

/** A file of this machine, or what a link there points to. */
export function file(path: string, source: string, mode = 0o644): Entry {
  const real = realpathSync(source);
  return { path, kind: 'file', mode, ...ROOT, source: real, size: statSync(real).size };
}

/** All below a folder of this machine, owned by root, without set-id bits; `keep` may leave out paths. */
export function tree(root: string, keep: (path: string) => boolean = () => true): Entry[] {
  const entries: Entry[] = [];
  const names = new Map<number, string>();
  const visit = (path: string): void => {
    const from = join(root, path);
    const stat = lstatSync(from);
    if (stat.isDirectory()) {
      if (path !== '') entries.push(folder(path, stat.mode & 0o1777));
      const inside = readdirSync(from).sort();
      for (const name of inside.map((child) => (path === '' ? child : `${path}/${child}`))) if (keep(name)) visit(name);
    } else if (stat.isSymbolicLink()) entries.push(link(path, readlinkSync(from)));
    else if (stat.isFile()) entries.push(fileOrTwin(path, from, stat, names));
  };
  visit('');
  return entries;
}

/** A file with several names is stored once. */
function fileOrTwin(path: string, source: string, stat: Stats, names: Map<number, string>): Entry {
  const first = stat.nlink > 1 ? names.get(stat.ino) : undefined;
  if (first !== undefined) return { path, kind: 'twin', mode: 0o644, ...ROOT, target: first };
  names.set(stat.ino, path);
  return { path, kind: 'file', mode: stat.mode & 0o777, ...ROOT, source, size: stat.size };
}

/** Sorted by path, with the folders that paths imply; of two entries of one path the later one counts. */
export function complete(entries: readonly Entry[]): Entry[] {
  const byPath = new Map(entries.map((entry) => [entry.path, entry]));
  for (const { path } of entries) {
    for (let parent = dirname(path); parent !== '.' && !byPath.has(parent); parent = dirname(parent))
      byPath.set(parent, folder(parent));
  }
  const sorted = [...byPath.values()].sort((a, b) => (a.path < b.path ? -1 : 1));
  // The second name of a file comes after the first, whatever the names are.
  return [...sorted.filter(({ kind }) => kind !== 'twin'), ...sorted.filter(({ kind }) => kind === 'twin')];
}

/** In our images /bin, /lib and /lib64 are links into /usr: where a path of this machine lies in them. */
export function inUsr(path: string): string {
  return join(dirname(path).replace(/^\/(lib|lib64)(?=\/|$)/, '/usr/$1'), basename(path)).slice(1);
}

const MERGED = ['bin', 'sbin', 'lib', 'lib64'];

/** What each root file system has: folders in /usr and links to them, mount points, a folder for temporary files. */
export const SKELETON: readonly Entry[] = [
  ...MERGED.flatMap((name) => [folder(`usr/${name}`), link(name, `usr/${name}`)]),
  ...['dev', 'proc', 'sys', 'run', 'etc'].map((path) => folder(path)),
  folder('tmp', 0o1777),
];

export const existing = (paths: readonly string[]): string[] => paths.filter((path) => existsSync(path));
