import type { HubBus } from '../stream/live-bus';

type Listener = (data: Uint8Array, subject: string) => void;

/** A message bus whose deliveries a spec can drop, hold back and reorder. */
export class SpecBus implements HubBus {
  /** False: messages are lost, as while the broker is down. */
  isUp = true;
  subscriptions = 0;
  private readonly listeners = new Map<string, Set<Listener>>();
  private readonly reconnectListeners = new Set<() => void>();
  private held: [string, string][] | undefined;
  private random: (() => number) | undefined;

  publish(subject: string, data: string): void {
    if (!this.isUp) return;
    if (this.random) this.deliverByChance(subject, data, this.random);
    else if (this.held) this.held.push([subject, data]);
    else this.deliver(subject, data);
  }

  /** From now on messages are lost, late, doubled or whole, as chance will have it. */
  leaveToChance(random: () => number): void {
    this.random = random;
  }

  /** Keeps messages from now on; they are delivered by hand. */
  hold(): [string, string][] {
    this.held = [];
    return this.held;
  }

  /** Delivers these in this order; others that were held are lost. */
  release(messages: readonly ([string, string] | undefined)[]): void {
    this.held = undefined;
    for (const message of messages) if (message) this.deliver(...message);
  }

  deliver(subject: string, data: string): void {
    for (const [pattern, listeners] of this.listeners)
      if (matches(pattern, subject)) for (const listener of listeners) listener(Buffer.from(data), subject);
  }

  reconnect(): void {
    this.isUp = true;
    for (const listener of this.reconnectListeners) listener();
  }

  subscribe(subject: string, listener: Listener): () => void {
    const known = this.listeners.get(subject) ?? new Set();
    this.listeners.set(subject, known.add(listener));
    this.subscriptions += 1;
    return () => {
      known.delete(listener);
      this.subscriptions -= 1;
    };
  }

  flush(): Promise<void> {
    return Promise.resolve();
  }

  onReconnect(listener: () => void): () => void {
    this.reconnectListeners.add(listener);
    return () => void this.reconnectListeners.delete(listener);
  }

  private deliverByChance(subject: string, data: string, random: () => number): void {
    const fate = random();
    if (fate < 0.15) return;
    if (fate < 0.4) setTimeout(() => this.deliver(subject, data), random() * 30);
    else this.deliver(subject, data);
    if (fate > 0.9) setTimeout(() => this.deliver(subject, data), random() * 30);
  }
}

/** A star stands for one word. */
function matches(pattern: string, subject: string): boolean {
  if (pattern === subject) return true;
  const [expected, words] = [pattern.split('.'), subject.split('.')];
  return expected.length === words.length && expected.every((word, index) => word === '*' || word === words[index]);
}
