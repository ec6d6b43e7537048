import { commitKey, type CommitDocument } from './document';
import { CommitStore } from './store';

/** Commits in memory, as texts, so that no two readers share an object. */
export class MemoryCommitStore extends CommitStore {
  private readonly sessions = new Map<string, string[]>();
  private readonly commitIds = new Map<string, number>();

  insert(document: CommitDocument): Promise<'inserted' | 'exists'> {
    const { sessionId, c, commitIds } = document;
    const log = this.sessions.get(sessionId) ?? [];
    if (document._id !== commitKey(sessionId, c))
      return Promise.reject(new Error(`document ${document._id} is not number ${c}`));
    if (log[c - 1] !== undefined) return Promise.resolve('exists');
    if (commitIds.some((id) => this.commitIds.has(`${sessionId} ${id}`))) return Promise.resolve('exists');
    log[c - 1] = JSON.stringify(document);
    this.sessions.set(sessionId, log);
    for (const id of commitIds) this.commitIds.set(`${sessionId} ${id}`, c);
    return Promise.resolve('inserted');
  }

  findByCommitId(sessionId: string, commitId: string): Promise<CommitDocument | undefined> {
    const c = this.commitIds.get(`${sessionId} ${commitId}`);
    return Promise.resolve(c === undefined ? undefined : this.at(sessionId, c));
  }

  readNumber(sessionId: string, c: number): Promise<CommitDocument | undefined> {
    return Promise.resolve(this.at(sessionId, c));
  }

  async *range(sessionId: string, from: number, to = Number.MAX_SAFE_INTEGER): AsyncIterable<CommitDocument> {
    for (let c = Math.max(1, from); c <= to; c++) {
      const document = this.at(sessionId, c);
      if (!document) return;
      yield document;
    }
  }

  findNumberByTs(sessionId: string, ts: number): Promise<number> {
    const log = this.sessions.get(sessionId) ?? [];
    let found = 0;
    for (let c = 1; c <= log.length && (this.at(sessionId, c)?.ts0 ?? Infinity) <= ts; c++) found = c;
    return Promise.resolve(found);
  }

  lowerBound(sessionId: string): Promise<number> {
    return Promise.resolve(this.sessions.get(sessionId)?.length ?? 0);
  }

  private at(sessionId: string, c: number): CommitDocument | undefined {
    const text = this.sessions.get(sessionId)?.[c - 1];
    return text === undefined ? undefined : (JSON.parse(text) as CommitDocument);
  }
}
