/** A command that has no answer yet. */
export interface PendingCommit {
  commitId: string;
  commandJson: string;
  committed: (c: number) => void;
  refused: (error: Error) => void;
}

/** A command that the log refused for another reason than that the run has moved on. */
export class RefusedCommit extends Error {
  constructor(
    readonly reason: string,
    message: string,
  ) {
    super(message);
    this.name = 'RefusedCommit';
  }
}

/** Commands without an answer, in the order in which they were given: sent again and again until each has one. */
export class PendingCommits {
  private readonly byId = new Map<string, PendingCommit>();

  get size(): number {
    return this.byId.size;
  }

  add(pending: PendingCommit): void {
    this.byId.set(pending.commitId, pending);
  }

  all(): PendingCommit[] {
    return [...this.byId.values()];
  }

  committed(commitId: string, c: number): void {
    const pending = this.byId.get(commitId);
    this.byId.delete(commitId);
    pending?.committed(c);
  }

  refused(commitId: string, error: Error): void {
    const pending = this.byId.get(commitId);
    this.byId.delete(commitId);
    pending?.refused(error);
  }

  refuseAll(error: Error): void {
    const all = this.all();
    this.byId.clear();
    for (const { refused } of all) refused(error);
  }
}
