import * as os from 'node:os';
import { MongoClient } from 'mongodb';
import { readCommit, type RawCommit, type StoredCommit } from './stored';

/** What the document store holds, read without any code of Margay. */
export class StoreReader {
  private readonly client: MongoClient;

  constructor(
    url: string,
    private readonly database: string,
  ) {
    this.client = new MongoClient(url, { runtimeAdapters: { os } });
  }

  /** All commits of a session, in order. */
  async commitsOf(sessionId: string): Promise<StoredCommit[]> {
    const commits = this.client.db(this.database).collection<RawCommit>('commits');
    const range = { _id: { $gte: `${sessionId}.0000000000`, $lte: `${sessionId}.9999999999` } };
    return (await commits.find(range).sort({ _id: 1 }).toArray()).map(readCommit);
  }

  /** Rows of the queue that show runs of these sessions as not ended. */
  async openRows(sessionIds: readonly string[]): Promise<{ _id: string; state: string }[]> {
    const rows = this.client.db(this.database).collection<{ _id: string; sessionId: string; state: string }>('runs');
    return rows.find({ sessionId: { $in: [...sessionIds] }, state: { $ne: 'done' } }).toArray();
  }

  /** Whether a life of a runner drives a run, by the queue; undefined where the store does not say in time. */
  async isDriving(owner: string, limitMs: number): Promise<boolean | undefined> {
    const rows = this.client.db(this.database).collection<{ owner: string; state: string }>('runs');
    const found = rows.findOne({ owner, state: 'running' }, { timeoutMS: limitMs });
    return found.then((row) => row !== null).catch(() => undefined);
  }

  async close(): Promise<void> {
    await this.client.close();
  }
}
