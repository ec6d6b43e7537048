import { mkdir, open, rename, rm, stat, type FileHandle } from 'node:fs/promises';
import path from 'node:path';
import type { PreparedEdit } from '@margay/toolbox';
import type { JournalEntry, JournalRow, StartedEntry, StoredResult } from './entries';

const FILE_NAME = 'journal.ndjson';
/** Rows beyond this go, oldest first, even if nobody forgot them. */
const MAX_BYTES = 256 * 1024 * 1024;
/** The file is rewritten when more than half of it, and at least this much, is dead. */
const MIN_DEAD_BYTES = 8 * 1024 * 1024;

interface Pending {
  entry: JournalEntry;
  text: string;
  isDurable: boolean;
  written: () => void;
  failed: (error: unknown) => void;
}

/**
 * What this sandbox ever started and how it ended, one JSON line each, append-only. `started` and `prepared` are on disk
 * before their promise resolves; a result is in the file, so it survives the death of this process.
 */
export class Journal {
  private readonly rows = new Map<string, JournalRow>();
  private pending: Pending[] = [];
  private flushing: Promise<void> | undefined;
  private bytes = 0;
  private deadBytes = 0;

  private constructor(
    private readonly file: string,
    private handle: FileHandle,
  ) {}

  static async exists(folder: string): Promise<boolean> {
    return isFile(path.join(folder, FILE_NAME));
  }

  static async open(folder: string): Promise<Journal> {
    await mkdir(folder, { recursive: true, mode: 0o700 });
    const file = path.join(folder, FILE_NAME);
    const journal = new Journal(file, await open(file, 'a+', 0o600));
    await journal.load();
    await syncFolder(folder);
    return journal;
  }

  find(callId: string): JournalRow | undefined {
    return this.rows.get(callId);
  }

  /** Calls that an earlier life of the daemon started and did not finish. */
  unfinished(): JournalRow[] {
    return [...this.rows.values()].filter((row) => row.result === undefined);
  }

  async started(entry: StartedEntry): Promise<void> {
    await this.append({ kind: 'started', ...entry }, true);
  }

  async prepared(callId: string, edit: PreparedEdit): Promise<void> {
    await this.append({ kind: 'prepared', callId, edit }, true);
  }

  async finished(callId: string, result: StoredResult): Promise<void> {
    await this.append({ kind: 'finished', callId, result }, false);
  }

  /** The stored result of a finished call. */
  async result(row: JournalRow): Promise<StoredResult> {
    if (!row.result) throw new Error(`call ${row.started.callId} has no result yet`);
    const { offset, length } = row.result;
    const buffer = Buffer.allocUnsafe(length);
    await this.handle.read(buffer, 0, length, offset);
    return (JSON.parse(buffer.toString('utf8')) as { result: StoredResult }).result;
  }

  /** Drops rows; their call ids count as never seen afterwards. */
  async forget(callIds: readonly string[]): Promise<void> {
    const known = callIds.filter((callId) => this.rows.has(callId));
    if (known.length > 0) await this.append({ kind: 'forgotten', callIds: known }, true);
  }

  async forgetRun(runId: string): Promise<void> {
    const rows = [...this.rows.values()].filter((row) => row.started.runId === runId && row.result !== undefined);
    await this.forget(rows.map((row) => row.started.callId));
  }

  async close(): Promise<void> {
    await this.flushing;
    await this.handle.close();
  }

  private append(entry: JournalEntry, isDurable: boolean): Promise<void> {
    return new Promise((written, failed) => {
      this.pending.push({ entry, text: `${JSON.stringify(entry)}\n`, isDurable, written, failed });
      this.flushing ??= this.flush().finally(() => (this.flushing = undefined));
    });
  }

  /** Entries that come while the disk works share its next turn. */
  private async flush(): Promise<void> {
    while (this.pending.length > 0) {
      const batch = this.pending;
      this.pending = [];
      try {
        if (this.isWasteful) await this.compactIfPossible();
        await this.write(batch);
        for (const { written } of batch) written();
      } catch (error) {
        for (const { failed } of batch) failed(error);
      }
    }
  }

  private async write(batch: readonly Pending[]): Promise<void> {
    const bytes = Buffer.from(batch.map(({ text }) => text).join(''));
    try {
      await this.handle.appendFile(bytes);
    } catch (error) {
      // A full disk takes a part: what comes next must not stand behind half a line.
      await this.handle.truncate(this.bytes);
      throw error;
    }
    for (const { entry, text } of batch) {
      const length = Buffer.byteLength(text);
      this.apply(entry, this.bytes, length);
      this.bytes += length;
    }
    if (batch.some(({ isDurable }) => isDurable)) await this.handle.datasync();
  }

  private get isWasteful(): boolean {
    return this.bytes > MAX_BYTES || (this.deadBytes > MIN_DEAD_BYTES && this.deadBytes * 2 > this.bytes);
  }

  private async load(): Promise<void> {
    const content = await this.handle.readFile();
    let offset = 0;
    for (let end = content.indexOf(10, offset); end !== -1; end = content.indexOf(10, offset)) {
      const entry = parseLine(content.subarray(offset, end));
      if (entry) this.apply(entry, offset, end + 1 - offset);
      offset = end + 1;
    }
    // A line cut off by a crash was never acknowledged.
    if (offset < content.length) await this.handle.truncate(offset);
    this.bytes = offset;
  }

  private apply(entry: JournalEntry, offset: number, length: number): void {
    if (entry.kind === 'started') {
      const { kind: _kind, ...started } = entry;
      this.rows.set(entry.callId, { started });
    } else if (entry.kind === 'forgotten') {
      for (const callId of entry.callIds) {
        this.deadBytes += this.rows.get(callId)?.result?.length ?? 0;
        this.rows.delete(callId);
      }
    } else {
      const row = this.rows.get(entry.callId);
      if (row && entry.kind === 'prepared') row.prepared = entry.edit;
      else if (row) row.result = { offset, length };
    }
  }

  /** A disk that is too full for a second file may have room for another line. */
  private async compactIfPossible(): Promise<void> {
    try {
      await this.compact();
    } catch (error) {
      await rm(`${this.file}.new`, { recursive: true, force: true });
      if (this.bytes > 2 * MAX_BYTES) throw error;
    }
  }

  /** Writes the living rows, newest first up to half the limit, to a new file and takes it. */
  private async compact(): Promise<void> {
    const lines: string[] = [];
    let size = 0;
    for (const row of [...this.rows.values()].reverse()) {
      const text = await this.textOf(row);
      if (size + text.length > MAX_BYTES / 2 && row.result) continue;
      size += text.length;
      lines.push(text);
    }
    await rm(`${this.file}.new`, { recursive: true, force: true });
    const target = await open(`${this.file}.new`, 'wx', 0o600);
    await target.writeFile(lines.reverse().join(''));
    await target.datasync();
    await target.close();
    await rename(`${this.file}.new`, this.file);
    // Else a crash of the machine might bring the old file back, without what is written from here on.
    await syncFolder(path.dirname(this.file));
    const old = this.handle;
    this.handle = await open(this.file, 'a+', 0o600);
    await old.close();
    this.rows.clear();
    this.deadBytes = 0;
    await this.load();
  }

  private async textOf(row: JournalRow): Promise<string> {
    const entries: JournalEntry[] = [{ kind: 'started', ...row.started }];
    const { callId } = row.started;
    if (row.result) entries.push({ kind: 'finished', callId, result: await this.result(row) });
    else if (row.prepared) entries.push({ kind: 'prepared', callId, edit: row.prepared });
    return entries.map((entry) => `${JSON.stringify(entry)}\n`).join('');
  }
}

/** Makes the names in a folder survive a crash of the machine. */
export async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** False where there is nothing. Throws for what is no file: a pipe in its place would be waited on for ever. */
export async function isFile(file: string): Promise<boolean> {
  const facts = await stat(file).catch(() => undefined);
  if (facts && !facts.isFile()) throw new Error(`${file} is no file any more`);
  return facts !== undefined;
}

function parseLine(bytes: Buffer): JournalEntry | undefined {
  try {
    return JSON.parse(bytes.toString('utf8')) as JournalEntry;
  } catch {
    return undefined; // garbage left by a full disk; its call was never acknowledged
  }
}
