import { Inbox, RunStopped, type InboxItem, type StopCause } from '@margay/engine';

/** Inbox of one run, fed by its Journal stream. */
export class GrpcInbox extends Inbox {
  private readonly items: InboxItem[] = [];
  private readonly listeners = new Set<(item: InboxItem) => void>();
  private readonly stopping = new AbortController();
  readonly stop: AbortSignal = this.stopping.signal;

  since(afterN: number): InboxItem[] {
    return this.items.filter(({ n }) => n > afterN);
  }

  onItem(listener: (item: InboxItem) => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Items in any order, some perhaps known already. */
  add(items: InboxItem[]): void {
    const added: InboxItem[] = [];
    for (const item of items) {
      if (this.items.some(({ n }) => n === item.n)) continue;
      this.items.push(item);
      added.push(item);
    }
    this.items.sort((a, b) => a.n - b.n);
    for (const item of added) for (const listener of [...this.listeners]) listener(item);
  }

  /** Whether all items with numbers above `afterN` up to `endN` are here: numbers have no holes. */
  holds(afterN: number, endN: number): boolean {
    return this.items.filter(({ n }) => n > afterN && n <= endN).length === endN - afterN;
  }

  stopFor(cause: StopCause): void {
    if (!this.stop.aborted) this.stopping.abort(new RunStopped(cause));
  }
}
