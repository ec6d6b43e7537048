import { access, constants } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { constants as zlib, createZstdCompress } from 'node:zlib';
import { pack, type Header, type Pack } from 'tar-stream';
import { openPlain } from '../files/plain-file';
import { textOf } from './archive-path';
import { placeOf, withMode, type TreeEntry } from './tree';

const PIECE_BYTES = 256 * 1024;
const LEVEL = 3;
const NS_DIGITS = 9;

/** Under these a header keeps what tar or its library does not: names that are no UTF-8, parts of seconds, mode 0. */
export const PAX = { path: 'MARGAY.path', target: 'MARGAY.target', mtime: 'mtime', mode: 'MARGAY.mode' } as const;

/** The entries as tar and zstd. Files that change meanwhile are taken as they are; those that go are left out. */
export function packTree(root: string, entries: readonly TreeEntry[]): { stream: Readable; count: number } {
  const archive = pack();
  const packing = { stream: new Readable(), count: 0 };
  write(root, archive, entries, () => (packing.count += 1)).then(
    () => archive.finalize(),
    (error: unknown) => archive.destroy(error instanceof Error ? error : new Error(String(error))),
  );
  const zstd = createZstdCompress({ params: { [zlib.ZSTD_c_compressionLevel]: LEVEL } });
  // Whoever reads may leave.
  zstd.on('close', () => archive.destroy());
  packing.stream = Readable.from(archive)
    .on('error', (error) => zstd.destroy(error))
    .pipe(zstd);
  return packing;
}

async function write(root: string, archive: Pack, entries: readonly TreeEntry[], onWritten: () => void): Promise<void> {
  const first = new Map<string, string>();
  for (const entry of entries) {
    if (archive.destroyed) return;
    const known = entry.inode === '' ? undefined : first.get(entry.inode);
    if (known !== undefined) await put(archive, { ...headerOf(entry), ...linkTo(known, entry), type: 'link', size: 0 });
    else if (entry.kind !== 'file') await put(archive, headerOf(entry));
    else if (!(await writeFile(root, archive, entry))) continue;
    onWritten();
    if (entry.inode !== '' && known === undefined) first.set(entry.inode, entry.path);
  }
}

/** @returns false: it is gone */
async function writeFile(root: string, archive: Pack, entry: TreeEntry): Promise<boolean> {
  const place = placeOf(root, entry.path);
  const file = await withMode(place, entry.mode, 0o400, async () => {
    const opened = await openPlain(place, { followsLinks: false });
    // Gone, or something else by now; or closed to us, which can be helped.
    if (!opened) await access(place, constants.R_OK);
    return opened;
  }).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return undefined;
    throw error;
  });
  if (!file) return false;
  try {
    const { size } = entry;
    await new Promise<void>((resolve, reject) => {
      const sink = archive.entry({ ...headerOf(entry), size }, (error) => (error ? reject(error) : resolve()));
      const fill = async (): Promise<void> => {
        for (let at = 0; at < size;) {
          const piece = Buffer.alloc(Math.min(PIECE_BYTES, size - at));
          const { bytesRead } = await file.read(piece, 0, piece.length, at);
          // What was cut off since is zeros; the next archive sees that it changed.
          const part = bytesRead === 0 ? piece : piece.subarray(0, bytesRead);
          if (!sink.write(part)) await drained(sink);
          at += part.length;
        }
        sink.end(null);
      };
      fill().catch(reject);
    });
    return true;
  } finally {
    await file.close();
  }
}

function drained(sink: NodeJS.EventEmitter): Promise<void> {
  return new Promise((resolve) => {
    const go = (): void => {
      sink.off('drain', go);
      sink.off('close', go);
      resolve();
    };
    sink.on('drain', go);
    sink.on('close', go);
  });
}

function put(archive: Pack, header: Partial<Header> & { name: string }): Promise<void> {
  return new Promise((resolve, reject) => {
    archive.entry(header, (error) => (error ? reject(error) : resolve())).end(null);
  });
}

function headerOf({ path, kind, mode, mtimeNs, target }: TreeEntry): Partial<Header> & { name: string } {
  const [name, pax] = named(path, PAX.path);
  const [linkname, targetPax] = target === undefined ? [undefined, {}] : named(target, PAX.target);
  const ns = String(mtimeNs % 1_000_000_000n).padStart(NS_DIGITS, '0');
  return {
    name,
    type: kind,
    mode,
    size: 0,
    mtime: new Date(Number(mtimeNs / 1_000_000n)),
    ...(linkname === undefined ? {} : { linkname }),
    pax: {
      ...pax,
      ...targetPax,
      ...(mode === 0 ? { [PAX.mode]: '0' } : {}),
      [PAX.mtime]: `${mtimeNs / 1_000_000_000n}.${ns}`,
    },
  };
}

function linkTo(path: string, entry: TreeEntry): Partial<Header> {
  const [linkname, pax] = named(path, PAX.target);
  return { linkname, pax: { ...(headerOf(entry).pax as Record<string, string>), ...pax } };
}

/** A name that is no UTF-8 stands in the archive by a substitute, and beside it whole. */
function named(path: string, key: string): [string, Record<string, string>] {
  const text = textOf(path);
  if (!text.startsWith('\0')) return [text, {}];
  const base64 = text.slice(1);
  return [`not-utf-8-${base64.replaceAll('/', '_').slice(0, 60)}`, { [key]: base64 }];
}
