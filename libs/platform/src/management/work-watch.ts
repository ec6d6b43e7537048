/** Work under way that is to end soon, whatever its outcome: how long has the oldest of it been going on? */
export class WorkWatch {
  /** Since when, oldest first. */
  private readonly begun = new Map<symbol, number>();

  constructor(private readonly nowMs: () => number = () => performance.now()) {}

  /** Returns what it was given. */
  track<T>(work: Promise<T>): Promise<T> {
    const key = Symbol();
    this.begun.set(key, this.nowMs());
    const done = (): void => void this.begun.delete(key);
    work.then(done, done);
    return work;
  }

  /** 0 while nothing is under way. */
  get oldestMs(): number {
    const [sinceMs] = this.begun.values();
    return sinceMs === undefined ? 0 : this.nowMs() - sinceMs;
  }
}
