/** Work that belongs to one key happens one after the other; different keys do not wait for each other. */
export class Turns {
  private readonly last = new Map<string, Promise<unknown>>();

  /** Runs `work` after everything asked for this key before, however that ended. */
  take<T>(key: string, work: () => Promise<T>): Promise<T> {
    const before = this.last.get(key) ?? Promise.resolve();
    const turn = before.then(work, work);
    const settled = turn.catch(() => undefined); // whoever asked is told
    this.last.set(key, settled);
    void settled.then(() => {
      if (this.last.get(key) === settled) this.last.delete(key);
    });
    return turn;
  }

  /** Resolves when everything asked for so far has ended. */
  async idle(): Promise<void> {
    await Promise.all(this.last.values());
  }
}
