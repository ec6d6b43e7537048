import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

export interface Listed {
  mode: string;
  owner: string;
  /** Of a symbolic link. */
  target?: string;
}

/** What GNU tar reads in an archive: an eye other than the writer's. */
export function listArchive(archive: string): Record<string, Listed> {
  const lines = execFileSync('tar', ['--numeric-owner', '-tvf', archive], {
    encoding: 'utf8',
    env: { ...process.env, LC_ALL: 'C' },
  });
  const entries = lines
    .trimEnd()
    .split('\n')
    .map((line) => {
      const [, mode = '', owner = '', path = '', target] =
        /^(\S+) (\S+) +\d+ \S+ \S+ (.*?)(?: (?:->|link to) (.*))?$/.exec(line) ?? [];
      return [path.replace(/\/$/, ''), { mode, owner, ...(target !== undefined && { target }) }] as const;
    });
  return Object.fromEntries(entries);
}

interface Descriptor {
  mediaType: string;
  digest: string;
  size: number;
  annotations?: Record<string, string>;
}
export interface OpenedImage {
  folder: string;
  index: { manifests: Descriptor[] };
  manifest: { config: Descriptor; layers: Descriptor[] };
  config: { config: Record<string, unknown>; rootfs: { diff_ids: string[] }; created: string };
  path(descriptor: Descriptor): string;
}

/** Unpacks an archive below the folder and reads it as a registry's client would. */
export function openImage(archive: string, below: string): OpenedImage {
  const folder = mkdtempSync(join(below, 'image-'));
  execFileSync('tar', ['-xf', archive, '-C', folder]);
  const json = <T>(path: string): T => JSON.parse(readFileSync(path, 'utf8')) as T;
  const path = ({ digest }: Descriptor): string => join(folder, 'blobs', digest.replace(':', '/'));
  const index = json<OpenedImage['index']>(join(folder, 'index.json'));
  const manifest = json<OpenedImage['manifest']>(path(index.manifests[0] as Descriptor));
  return { folder, index, manifest, config: json<OpenedImage['config']>(path(manifest.config)), path };
}
