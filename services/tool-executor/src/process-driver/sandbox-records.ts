import { randomBytes } from 'node:crypto';
import { mkdir, readFile, readdir, rename, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { removeTree } from '@margay/toolbox';
import { z } from 'zod';

const ProcessIdentity = z.object({
  pid: z.number(),
  /** Field 22 of /proc/<pid>/stat: tells a process from a later one with the same number. */
  startedAt: z.string(),
});

const SandboxRecord = z.object({
  sandboxId: z.string(),
  tenantId: z.string(),
  sessionId: z.string(),
  /** Whose workspace it is, where all sessions of a project share one. */
  projectId: z.string().optional(),
  /** Absent: the usual one. */
  sandboxClass: z.string().optional(),
  /** The workspace on the host. */
  folder: z.string(),
  /** Device and number of that folder: another one may come to bear its name. */
  folderId: z.string().optional(),
  /** Of a worktree: the repository it belongs to, and which folder that is. */
  repository: z.object({ folder: z.string(), id: z.string() }).optional(),
  uid: z.number(),
  gid: z.number(),
  generation: z.number(),
  epoch: z.number(),
  /** Everything a running sandbox was started from; another one is not adopted. */
  fingerprint: z.string(),
  /** Empty while it does not run. The second one is the first process inside, if it has its own numbering. */
  processes: z.array(ProcessIdentity),
  lastUsedAt: z.number(),
});
export type SandboxRecord = z.infer<typeof SandboxRecord>;
export type ProcessIdentity = z.infer<typeof ProcessIdentity>;

const KEPT_MS = 30 * 24 * 3_600_000;

/** What the driver knows of each sandbox, one file each, written before and after every change of a process. */
export class SandboxRecords {
  private readonly records = new Map<string, SandboxRecord>();
  private saving: Promise<void> = Promise.resolve();

  private constructor(private readonly base: string) {}

  static async open(base: string): Promise<SandboxRecords> {
    await mkdir(base, { recursive: true, mode: 0o711 });
    const records = new SandboxRecords(base);
    for (const name of await readdir(base)) await records.load(name);
    return records;
  }

  all(): SandboxRecord[] {
    return [...this.records.values()];
  }

  find(sandboxId: string): SandboxRecord | undefined {
    return this.records.get(sandboxId);
  }

  /** Later saves of a record wait for earlier ones. */
  save(record: SandboxRecord): Promise<void> {
    this.records.set(record.sandboxId, record);
    const write = (): Promise<void> => this.write(record);
    this.saving = this.saving.then(write, write);
    return this.saving;
  }

  async remove(sandboxId: string): Promise<void> {
    this.records.delete(sandboxId);
    await removeTree(path.join(this.base, sandboxId));
  }

  /** Sandboxes unused for a month leave nothing behind but their workspace. */
  async collect(now: number): Promise<void> {
    const old = this.all().filter((record) => record.processes.length === 0 && now - record.lastUsedAt > KEPT_MS);
    for (const record of old) await this.remove(record.sandboxId);
  }

  private async write(record: SandboxRecord): Promise<void> {
    const file = path.join(this.base, record.sandboxId, 'record.json');
    await mkdir(path.dirname(file), { recursive: true, mode: 0o711 });
    const temporary = `${file}.${randomBytes(4).toString('hex')}`;
    await writeFile(temporary, JSON.stringify(record), { mode: 0o600 });
    await rename(temporary, file);
  }

  private async load(name: string): Promise<void> {
    const text = await readFile(path.join(this.base, name, 'record.json'), 'utf8').catch(() => undefined);
    const parsed = text === undefined ? undefined : SandboxRecord.safeParse(JSON.parse(text));
    if (parsed?.success) this.records.set(parsed.data.sandboxId, parsed.data);
  }
}
