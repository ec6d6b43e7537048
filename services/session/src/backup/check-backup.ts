import { createHash, type Hash } from 'node:crypto';
import { LogCheck } from '@margay/log';
import { BSON, type Binary, type Document } from 'mongodb';
import { blobsOf } from '../commits/blob-references';
import { fromStored, type StoredCommit } from '../commits/commit.mapper';
import { readManifest, type BackupItem } from './backup-format';
import { CHUNKS, COMMITS, FILES } from './backup-source';
import { readPart } from './part-reader';

export interface BackupCheck {
  sessions: number;
  commits: number;
  blobs: number;
  /** What is wrong, for people; at most 100. */
  problems: string[];
}

const PROBLEMS_MAX = 100;

/**
 * Reads a whole backup: files are what was written, logs are in order, blobs are whole, and each that a commit refers to is
 * there. Takes some 100 bytes of memory for each blob.
 * @throws FailedPreconditionError `backup_damaged`; NotFoundError `backup_missing`
 */
export async function checkBackup(folder: string): Promise<BackupCheck> {
  const manifest = await readManifest(folder);
  const check = new BackupReading();
  if (manifest.finishedAt === undefined)
    check.problem('the backup was never finished: run it again with the same folder');
  for (const part of manifest.parts) for await (const item of readPart(folder, part)) check.take(item);
  return check.result();
}

class BackupReading {
  private readonly check: BackupCheck = { sessions: 0, commits: 0, blobs: 0, problems: [] };
  private log: { sessionId: string; check: LogCheck; isBad: boolean } | undefined;
  private blob: { id: string; hash: Hash } | undefined;
  /** Blobs that are referred to and did not come yet. */
  private readonly wanted = new Set<string>();

  take({ into, document }: BackupItem): void {
    if (into === COMMITS) this.commit(asRead(document) as StoredCommit);
    else if (into === CHUNKS) this.chunk(document);
    else if (into === FILES) this.file(document);
  }

  result(): BackupCheck {
    for (const name of this.wanted) this.problem(`blob ${name} is missing`);
    return this.check;
  }

  problem(text: string): void {
    if (this.check.problems.length < PROBLEMS_MAX) this.check.problems.push(text);
  }

  private commit(stored: StoredCommit): void {
    const { sessionId } = stored;
    if (this.log?.sessionId !== sessionId) {
      this.log = { sessionId, check: new LogCheck(sessionId), isBad: false };
      this.check.sessions += 1;
    }
    this.check.commits += 1;
    if (this.log.isBad) return;
    const problem = this.commitProblem(stored, this.log.check);
    if (problem === undefined) return;
    this.log.isBad = true;
    this.problem(`session ${sessionId}: ${problem}`);
  }

  private commitProblem(stored: StoredCommit, log: LogCheck): string | undefined {
    try {
      const document = fromStored(stored);
      for (const id of blobsOf(document)) this.wanted.add(`${document.tenantId}/${id}`);
      const fault = log.next(document);
      return fault && `commit ${fault.c}: ${fault.problem}`;
    } catch (error) {
      return `${stored._id} can't be read: ${error instanceof Error ? error.message : String(error)}`;
    }
  }

  /** Pieces of a blob come together, its file behind them. */
  private chunk({ files_id: filesId, data }: Document): void {
    const id = String(filesId);
    if (this.blob?.id !== id) this.blob = { id, hash: createHash('sha256') };
    const { buffer, position } = data as Binary;
    this.blob.hash.update(buffer.subarray(0, position));
  }

  private file({ _id, filename }: Document): void {
    const name = String(filename);
    const hash = this.blob?.id === String(_id) ? this.blob.hash : createHash('sha256');
    if (!name.endsWith(`/${hash.digest('hex')}`)) this.problem(`blob ${name} is not what its name says`);
    this.blob = undefined;
    this.check.blobs += 1;
    this.wanted.delete(name);
  }
}

/** As the driver gives it, with plain numbers. */
function asRead(document: Document): Document {
  return BSON.deserialize(BSON.serialize(document));
}
