import { mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { signalQuietly } from './children';
import { findIdentity } from './process-identity';

const Entries = z.array(z.object({ name: z.string(), pid: z.number().int().positive(), identity: z.string() }));
type Entry = z.infer<typeof Entries>[number];

/**
 * A file of the processes that one launcher started. A launcher that was killed leaves them running;
 * the next one ends them by process id, each only if it still is the process that was recorded.
 */
export class PidLedger {
  private entries: Entry[] = [];
  private writing: Promise<void> = Promise.resolve();

  constructor(private readonly file: string) {}

  async add(name: string, pid: number): Promise<void> {
    const identity = await findIdentity(pid);
    if (identity !== undefined) this.entries.push({ name, pid, identity });
    await this.save();
  }

  async remove(pid: number): Promise<void> {
    this.entries = this.entries.filter((entry) => entry.pid !== pid);
    await this.save();
  }

  /** Ends what an earlier launcher left; returns the names. Call it before the first `add`. */
  async endLeftovers(graceMs = 3_000): Promise<string[]> {
    const left = await this.read();
    const ended = await Promise.all(left.map((entry) => end(entry, graceMs)));
    await rm(this.file, { force: true });
    return left.filter((_, index) => ended[index]).map((entry) => entry.name);
  }

  private async read(): Promise<Entry[]> {
    const text = await readFile(this.file, 'utf8').catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return '[]';
      throw error;
    });
    return Entries.parse(JSON.parse(text));
  }

  private save(): Promise<void> {
    this.writing = this.writing.then(async () => {
      await mkdir(dirname(this.file), { recursive: true });
      await writeFile(`${this.file}.new`, JSON.stringify(this.entries), { mode: 0o600 });
      await rename(`${this.file}.new`, this.file);
    });
    return this.writing;
  }
}

async function end({ pid, identity }: Entry, graceMs: number): Promise<boolean> {
  const isSame = async () => (await findIdentity(pid)) === identity;
  if (!(await isSame())) return false;
  signalQuietly(pid, 'SIGTERM');
  const deadline = Date.now() + graceMs;
  while (await isSame()) {
    if (Date.now() > deadline) signalQuietly(pid, 'SIGKILL');
    await sleep(25);
  }
  return true;
}
