import { randomBytes } from 'node:crypto';
import { mkdir, open, readFile, rename, rm } from 'node:fs/promises';
import path from 'node:path';
import type { SandboxGrant } from '@margay/contracts';
import { FailedPreconditionError, PermissionDeniedError, UnavailableError, type MargayError } from '@margay/errors';
import { z } from 'zod';
import { isFile, syncFolder } from '../journal/journal';

const Stored = z.object({
  incarnation: z.string(),
  /** The session this sandbox belongs to, from its first grant on and for ever. */
  sessionId: z.string().nullable(),
  generation: z.number(),
  epoch: z.number(),
});
type Stored = z.infer<typeof Stored>;

/** Generation and epoch; a store restored from a backup starts a new generation. */
export interface Epoch {
  generation: number;
  epoch: number;
}

export const epochOf = (grant: SandboxGrant): Epoch => ({ generation: grant.storeGeneration, epoch: grant.epoch });

export function isLower(a: Epoch, b: Epoch): boolean {
  return a.generation === b.generation ? a.epoch < b.epoch : a.generation < b.generation;
}

/** Incarnation, binding and highest epoch, kept in a file beside the journal. */
export class SandboxState {
  private saving: Promise<void> = Promise.resolve();
  private readonly listeners = new Set<(highest: Epoch) => void>();

  private constructor(
    private readonly file: string,
    private stored: Stored,
  ) {}

  /**
   * Reads the file. A new incarnation starts where there is none, where it is damaged (commands in the sandbox can reach
   * it), and where the journal that it belongs to is gone.
   */
  static async open(folder: string, minimum: Epoch, hasJournal: boolean): Promise<SandboxState> {
    await mkdir(folder, { recursive: true, mode: 0o700 });
    const file = path.join(folder, 'state.json');
    const text = (await isFile(file)) ? await readFile(file, 'utf8') : '';
    const incarnation = randomBytes(16).toString('hex');
    const known = parse(text) ?? { incarnation, sessionId: null, ...minimum };
    const stored = hasJournal ? known : { ...known, incarnation };
    const state = new SandboxState(file, isLower(stored, minimum) ? { ...stored, ...minimum } : stored);
    await state.save();
    return state;
  }

  get incarnation(): string {
    return this.stored.incarnation;
  }

  /** Null until it is bound. */
  get sessionId(): string | null {
    return this.stored.sessionId;
  }

  get highest(): Epoch {
    const { generation, epoch } = this.stored;
    return { generation, epoch };
  }

  /** Called with the new highest epoch whenever it is raised. */
  onRaise(listener: (highest: Epoch) => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Binds to the grant's session, refuses what is stale, and stores a higher epoch before it returns. */
  async admit(grant: SandboxGrant): Promise<void> {
    const { sessionId } = this.stored;
    if (grant.sessionId === undefined) {
      throw new PermissionDeniedError('grant_scope', 'The grant names no session; it opens nothing but a greeting.');
    }
    if (sessionId !== null && sessionId !== grant.sessionId) {
      throw new PermissionDeniedError('sandbox_bound', 'This sandbox belongs to another session.');
    }
    this.assertCurrent(epochOf(grant));
    const isRaised = isLower(this.highest, epochOf(grant));
    if (sessionId !== null && !isRaised) return;
    this.stored = { ...this.stored, sessionId: grant.sessionId, ...epochOf(grant) };
    if (isRaised) this.announce();
    await this.save();
  }

  /** Raises the lowest epoch served. */
  async raise(minimum: Epoch): Promise<void> {
    if (!isLower(this.highest, minimum)) return;
    this.stored = { ...this.stored, ...minimum };
    this.announce();
    await this.save();
  }

  assertCurrent(epoch: Epoch): void {
    if (!isLower(epoch, this.highest)) return;
    throw staleEpoch(epoch, this.highest);
  }

  private announce(): void {
    for (const listener of [...this.listeners]) listener(this.highest);
  }

  private save(): Promise<void> {
    const text = JSON.stringify(this.stored);
    const write = async (): Promise<void> => {
      await rm(`${this.file}.new`, { recursive: true, force: true });
      const handle = await open(`${this.file}.new`, 'wx', 0o600);
      try {
        await handle.writeFile(text);
        await handle.datasync();
      } finally {
        await handle.close();
      }
      await rename(`${this.file}.new`, this.file);
      await syncFolder(path.dirname(this.file));
    };
    this.saving = this.saving.then(write, write);
    return this.saving.catch((cause: unknown) => {
      throw new UnavailableError('journal_failed', 'The sandbox cannot write its state; is its disk full?', { cause });
    });
  }
}

function parse(text: string): Stored | undefined {
  try {
    return Stored.parse(JSON.parse(text));
  } catch {
    return undefined; // empty or damaged
  }
}

export function staleEpoch(epoch: Epoch, highest: Epoch): MargayError {
  return new FailedPreconditionError(
    'stale_epoch',
    `Epoch ${epoch.epoch} has been replaced by ${highest.epoch}; another process owns the run now.`,
  );
}
