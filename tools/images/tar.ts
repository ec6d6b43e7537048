// Writes tar archives (POSIX ustar, pax records for what does not fit) whose bytes depend on their entries alone: all
// times are zero, and there are no names of users or groups.
import { createReadStream } from 'node:fs';
import type { Entry } from './entries.ts';

const BLOCK = 512;
const NAME_BYTES = 100;
const PREFIX_BYTES = 155;
const TARGET_BYTES = 100;
const TYPES = { file: '0', twin: '1', link: '2', folder: '5', pax: 'x' };

interface Header {
  path: string;
  type: string;
  mode: number;
  uid: number;
  gid: number;
  size: number;
  target: string;
}

/** The bytes of an archive of these entries, in their order. */
export async function* tar(entries: readonly Entry[]): AsyncGenerator<Buffer> {
  for (const entry of entries) {
    yield* headerOf(entry);
    if (entry.kind !== 'file') continue;
    if (entry.content !== undefined) yield Buffer.from(entry.content);
    else yield* bytesOf(entry.source, entry.size);
    yield padding(sizeOf(entry));
  }
  yield Buffer.alloc(2 * BLOCK);
}

function sizeOf(entry: Entry): number {
  if (entry.kind !== 'file') return 0;
  return entry.content === undefined ? entry.size : Buffer.byteLength(entry.content);
}

async function* bytesOf(source: string, size: number): AsyncGenerator<Buffer> {
  let read = 0;
  for await (const chunk of createReadStream(source, { highWaterMark: 1 << 20 })) {
    read += (chunk as Buffer).length;
    yield chunk as Buffer;
  }
  if (read !== size) throw new Error(`${source} changed while it was read; run the command again`);
}

const padding = (size: number): Buffer => Buffer.alloc((BLOCK - (size % BLOCK)) % BLOCK);

function* headerOf(entry: Entry): Generator<Buffer> {
  const { mode, uid, gid, kind } = entry;
  const path = kind === 'folder' ? `${entry.path}/` : entry.path;
  const target = kind === 'link' || kind === 'twin' ? entry.target : '';
  const records: Record<string, string> = {
    ...(!split(path) && { path }),
    ...(Buffer.byteLength(target) > TARGET_BYTES && { linkpath: target }),
  };
  if (Object.keys(records).length > 0) {
    const body = Buffer.concat(Object.entries(records).map(([key, value]) => paxRecord(key, value)));
    yield block({ path: 'pax', type: TYPES.pax, mode: 0o644, uid: 0, gid: 0, size: body.length, target: '' });
    yield body;
    yield padding(body.length);
  }
  yield block({ path, type: TYPES[kind], mode, uid, gid, size: sizeOf(entry), target });
}

/** A path of at most 100 bytes, or parted at a slash into at most 155 and 100; undefined: neither. */
function split(path: string): { name: string; prefix: string } | undefined {
  if (Buffer.byteLength(path) <= NAME_BYTES) return { name: path, prefix: '' };
  for (let slash = path.indexOf('/'); slash > 0; slash = path.indexOf('/', slash + 1)) {
    const [prefix, name] = [path.slice(0, slash), path.slice(slash + 1)];
    if (Buffer.byteLength(prefix) > PREFIX_BYTES) return undefined;
    if (name !== '' && Buffer.byteLength(name) <= NAME_BYTES) return { name, prefix };
  }
  return undefined;
}

/** `LENGTH KEY=VALUE\n`, where LENGTH counts itself. */
function paxRecord(key: string, value: string): Buffer {
  const rest = Buffer.byteLength(` ${key}=${value}\n`);
  let length = rest;
  while (length !== rest + String(length).length) length = rest + String(length).length;
  return Buffer.from(`${length} ${key}=${value}\n`);
}

/** What is too long for its place is cut here and stands whole in the pax record before. */
function block({ path, type, mode, uid, gid, size, target }: Header): Buffer {
  const { name, prefix } = split(path) ?? { name: path, prefix: '' };
  const bytes = Buffer.alloc(BLOCK);
  const octal = (value: number, offset: number, width: number): void =>
    void bytes.write(value.toString(8).padStart(width - 1, '0'), offset, 'latin1');
  bytes.write(name, 0, NAME_BYTES);
  octal(mode, 100, 8);
  octal(uid, 108, 8);
  octal(gid, 116, 8);
  octal(size, 124, 12);
  octal(0, 136, 12);
  bytes.fill(' ', 148, 156); // the sum is made over spaces in its own place
  bytes.write(type, 156);
  bytes.write(target, 157, TARGET_BYTES);
  bytes.write('ustar\x0000', 257, 'latin1');
  octal(0, 329, 8);
  octal(0, 337, 8);
  bytes.write(prefix, 345, PREFIX_BYTES);
  const sum = bytes.reduce((total, byte) => total + byte, 0);
  bytes.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148, 'latin1');
  return bytes;
}
