import { mkdir, open, rm, type FileHandle } from 'node:fs/promises';
import path from 'node:path';

export interface OutputLogOptions {
  /** Output beyond `memoryBytes` goes to this file; absent = it is only counted. */
  spillFile?: string;
  /** 256 KiB. */
  memoryBytes?: number;
  /** The file stops growing here: 256 MiB. */
  maxFileBytes?: number;
}

export interface OutputPreview {
  /** All output, or head and tail around a marker. */
  text: string;
  totalBytes: number;
  isComplete: boolean;
  /** Where all of it lies, if it did not fit. */
  file?: string;
}

const MEMORY_BYTES = 256 * 1024;
const MAX_FILE_BYTES = 256 * 1024 * 1024;
const HEAD_SHARE = 1 / 4;

/** The output of one call: bounded in memory, complete in a file, readable from any offset while it grows. */
export class OutputLog {
  private readonly memoryBytes: number;
  private readonly maxFileBytes: number;
  /** Everything until it spills, then only the head. */
  private head: Buffer[] = [];
  private headBytes = 0;
  private tail: Buffer[] = [];
  private tailBytes = 0;
  private total = 0;
  private file: FileHandle | undefined;
  private fileBytes = 0;
  private isFileFull = false;
  private isSpilled = false;
  private isClosed = false;
  private readonly listeners = new Set<() => void>();

  constructor(private readonly options: OutputLogOptions = {}) {
    this.memoryBytes = options.memoryBytes ?? MEMORY_BYTES;
    this.maxFileBytes = options.maxFileBytes ?? MAX_FILE_BYTES;
  }

  get totalBytes(): number {
    return this.total;
  }

  /** Up to here `read` has something; less than the total where the file is full or cannot be written. */
  get readableBytes(): number {
    return this.isSpilled ? Math.max(this.headBytes, this.fileBytes) : this.total;
  }

  /** Calls back after every append until the returned function is called. */
  onAppend(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Appends must not overlap; a caller stops reading its source until this resolves. */
  async append(bytes: Buffer): Promise<void> {
    if (bytes.length === 0 || this.isClosed) return;
    if (!this.isSpilled && this.headBytes + bytes.length > this.memoryBytes) await this.spill();
    if (this.isSpilled) await this.appendSpilled(bytes);
    else this.keepHead(bytes);
    this.total += bytes.length;
    for (const listener of [...this.listeners]) listener();
  }

  /** Up to `maxBytes` from `offset`; empty where there is none (yet, or because it was not kept). */
  async read(offset: number, maxBytes: number): Promise<Buffer> {
    if (offset < this.headBytes) {
      const whole = Buffer.concat(this.head);
      this.head = [whole];
      return whole.subarray(offset, offset + maxBytes);
    }
    const length = Math.min(maxBytes, this.fileBytes - offset);
    if (!this.file || length <= 0) return Buffer.alloc(0);
    const buffer = Buffer.allocUnsafe(length);
    const { bytesRead } = await this.file.read(buffer, 0, length, offset);
    return buffer.subarray(0, bytesRead);
  }

  preview(): OutputPreview {
    if (!this.isSpilled) {
      return { text: Buffer.concat(this.head).toString('utf8'), totalBytes: this.total, isComplete: true };
    }
    const head = wholeCharacters(Buffer.concat(this.head), 'start');
    const tail = wholeCharacters(Buffer.concat(this.tail).subarray(-this.tailLimit), 'end');
    const omitted = this.total - head.length - tail.length;
    const where = this.file ? `; all ${this.fileBytes} bytes kept are in ${this.options.spillFile}` : '';
    const marker = `\n[... ${omitted} bytes of ${this.total} left out${where} ...]\n`;
    return {
      text: head.toString('utf8') + marker + tail.toString('utf8'),
      totalBytes: this.total,
      isComplete: false,
      ...(this.file && this.options.spillFile !== undefined ? { file: this.options.spillFile } : {}),
    };
  }

  /** Closes the file: `read` then serves only the head, and later appends are dropped. */
  async close(): Promise<void> {
    this.isClosed = true;
    this.listeners.clear();
    const { file } = this;
    this.file = undefined;
    await file?.close();
  }

  private get tailLimit(): number {
    return Math.ceil(this.memoryBytes * (1 - HEAD_SHARE));
  }

  private keepHead(bytes: Buffer): void {
    this.head.push(bytes);
    this.headBytes += bytes.length;
  }

  private async spill(): Promise<void> {
    this.isSpilled = true;
    const kept = Buffer.concat(this.head);
    this.file = await this.openFile();
    await this.writeFile(kept);
    const headBytes = Math.floor(this.memoryBytes * HEAD_SHARE);
    this.head = [Buffer.from(kept.subarray(0, headBytes))];
    this.headBytes = Math.min(headBytes, kept.length);
    this.keepTail(kept.subarray(this.headBytes));
  }

  /** Undefined where none can be made: a full or forbidden folder must not end the command. */
  private async openFile(): Promise<FileHandle | undefined> {
    const { spillFile } = this.options;
    if (spillFile === undefined) return undefined;
    try {
      await mkdir(path.dirname(spillFile), { recursive: true, mode: 0o700 });
      // A link or pipe that a command left under this name is not written to.
      await rm(spillFile, { force: true });
      return await open(spillFile, 'wx+', 0o600);
    } catch {
      return undefined; // then output is only counted, and the preview names no file
    }
  }

  private async appendSpilled(bytes: Buffer): Promise<void> {
    await this.writeFile(bytes);
    this.keepTail(bytes);
  }

  private async writeFile(bytes: Buffer): Promise<void> {
    const room = this.maxFileBytes - this.fileBytes;
    if (!this.file || this.isFileFull || room <= 0) return;
    try {
      const { bytesWritten } = await this.file.write(bytes, 0, Math.min(room, bytes.length), this.fileBytes);
      this.fileBytes += bytesWritten;
    } catch {
      // A full disk must not end the command; the marker in the preview names how much was kept.
      this.isFileFull = true;
    }
  }

  private keepTail(bytes: Buffer): void {
    const limit = this.tailLimit;
    // A copy, or a slice of a pooled chunk would keep the whole chunk.
    this.tail.push(Buffer.from(bytes.subarray(Math.max(0, bytes.length - limit))));
    this.tailBytes += this.tail.at(-1)?.length ?? 0;
    while (this.tail[0] && this.tailBytes - this.tail[0].length >= limit) {
      this.tailBytes -= this.tail.shift()?.length ?? 0;
    }
  }
}

/** Drops the pieces of a character that a cut left at the inner edge. */
function wholeCharacters(bytes: Buffer, kept: 'start' | 'end'): Buffer {
  const isContinuation = (byte: number | undefined): boolean => byte !== undefined && (byte & 0xc0) === 0x80;
  if (kept === 'end') {
    let from = 0;
    while (from < 4 && isContinuation(bytes[from])) from += 1;
    return bytes.subarray(from);
  }
  let lead = bytes.length - 1;
  while (lead > bytes.length - 4 && isContinuation(bytes[lead])) lead -= 1;
  const first = bytes[lead] ?? 0;
  const wanted = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;
  return bytes.length - lead < wanted ? bytes.subarray(0, lead) : bytes;
}
