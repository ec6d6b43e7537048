import type { FileHandle } from 'node:fs/promises';
import { z } from 'zod';
import { lenientInteger, parseArguments } from '../arguments';
import { ToolFailure, type CallContext, type FileVersion, type ToolOutcome } from '../outcome';
import { openFile } from './open-file';
import type { PathPolicy } from './paths';

const DEFAULT_LIMIT = 2_000;
/** No read returns more text than this, whatever `limit` says. */
const MAX_TEXT_CHARS = 1_000_000;
const CHUNK_BYTES = 256 * 1024;
const MORE = '\n... (truncated — use offset/limit to read more)';

const Arguments = z.preprocess(
  (value) => (typeof value === 'string' ? { path: value } : value),
  z.object({
    path: z.string().min(1),
    root: z.string().optional(),
    offset: lenientInteger(0),
    limit: lenientInteger(DEFAULT_LIMIT),
    max_bytes: lenientInteger(0),
  }),
);

interface Slice {
  lines: string[];
  totalLines: number;
  isTruncated: boolean;
}

/** `read_file` (ext §1.3). */
export async function readFileTool(args: unknown, paths: PathPolicy, call: CallContext): Promise<ToolOutcome> {
  const startedAt = performance.now();
  const { path: given, root, offset, limit, max_bytes: maxBytes } = parseArguments('read_file', Arguments, args);
  const absolute = paths.resolve(given, root);
  let handle: FileHandle;
  try {
    handle = await openFile(absolute, given);
  } catch (error) {
    throw new ToolFailure(`${given}: unable to read`, { cause: error });
  }
  try {
    const version = await versionOf(handle);
    const durationMs = (): number => Math.round(performance.now() - startedAt);
    if (isSameVersion(call.ifUnchanged, version)) {
      return {
        status: 'ok',
        result: '',
        unchanged: true,
        fileVersion: version,
        changedFiles: [],
        durationMs: durationMs(),
      };
    }
    const slice = await readSlice(handle, given, { first: Math.max(0, offset), limit, maxBytes, signal: call.signal });
    const text = slice.lines.join('\n') + (slice.isTruncated ? MORE : '');
    return {
      status: 'ok',
      result: { kind: 'file', path: given, text, total_lines: slice.totalLines },
      changedFiles: [],
      durationMs: durationMs(),
      ...(slice.isTruncated ? {} : { fileVersion: version }),
    };
  } finally {
    await handle.close();
  }
}

async function versionOf(handle: FileHandle): Promise<FileVersion> {
  const facts = await handle.stat({ bigint: true });
  return { mtimeNs: String(facts.mtimeNs), size: Number(facts.size) };
}

function isSameVersion(known: FileVersion | undefined, version: FileVersion): boolean {
  return known !== undefined && known.mtimeNs === version.mtimeNs && known.size === version.size;
}

interface SliceOptions {
  first: number;
  /** ≤ 0 = no cut. */
  limit: number;
  /** 0 = no cut. */
  maxBytes: number;
  signal: AbortSignal;
}

/** Reads in pieces, so a huge file costs time but no memory. */
async function readSlice(handle: FileHandle, given: string, options: SliceOptions): Promise<Slice> {
  const collector = new LineCollector(options.first, options.limit > 0 ? options.first + options.limit : Infinity);
  const decoder = new TextDecoder('utf-8', { fatal: true });
  const buffer = Buffer.allocUnsafe(CHUNK_BYTES);
  let position = 0;
  let isCutByBytes = false;
  for (;;) {
    options.signal.throwIfAborted();
    const wanted = options.maxBytes > 0 ? Math.min(CHUNK_BYTES, options.maxBytes - position) : CHUNK_BYTES;
    const { bytesRead } = await handle.read(buffer, 0, Math.max(1, wanted), position);
    if (bytesRead === 0) break;
    if (wanted <= 0) {
      isCutByBytes = true;
      break;
    }
    position += bytesRead;
    collector.add(decode(decoder, buffer.subarray(0, bytesRead), given));
  }
  if (!isCutByBytes) collector.add(decode(decoder, undefined, given));
  collector.end();
  return { lines: collector.lines, totalLines: collector.total, isTruncated: isCutByBytes || collector.isTruncated };
}

function decode(decoder: InstanceType<typeof TextDecoder>, bytes: Buffer | undefined, given: string): string {
  try {
    return bytes ? decoder.decode(bytes, { stream: true }) : decoder.decode();
  } catch (error) {
    throw new ToolFailure(`${given}: unable to read`, { cause: error });
  }
}

/** Counts all lines and keeps those in `[first, end)`, numbered from 1. */
class LineCollector {
  readonly lines: string[] = [];
  total = 0;
  isTruncated = false;
  private partial = '';
  private kept = 0;

  constructor(
    private readonly first: number,
    private readonly stop: number,
  ) {}

  add(text: string): void {
    let start = 0;
    for (let at = text.indexOf('\n'); at !== -1; at = text.indexOf('\n', start)) {
      this.take(this.partial + text.slice(start, at));
      this.partial = '';
      start = at + 1;
    }
    // A line longer than anything shown need not be kept whole.
    this.partial = (this.partial + text.slice(start)).slice(0, MAX_TEXT_CHARS + 1);
  }

  end(): void {
    if (this.partial !== '') this.take(this.partial);
  }

  private take(line: string): void {
    const index = this.total;
    this.total += 1;
    if (index < this.first) return;
    if (index >= this.stop || this.kept >= MAX_TEXT_CHARS) {
      this.isTruncated = true;
      return;
    }
    const room = MAX_TEXT_CHARS - this.kept;
    const shown = line.endsWith('\r') ? line.slice(0, -1) : line;
    if (shown.length > room) this.isTruncated = true;
    this.lines.push(`${index + 1}\t${shown.slice(0, room)}`);
    this.kept += Math.min(room, shown.length) + 1;
  }
}
