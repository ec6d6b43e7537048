/** A planned event; cancelling it is free. */
export interface Timer {
  cancel(): void;
}

interface Planned {
  atMs: number;
  /** Events of the same time happen in the order in which they were planned. */
  order: number;
  run: (() => void) | undefined;
}

/**
 * Time that passes only from event to event. Between two events all microtasks run, so that the promises of the code
 * under test settle exactly as they would in a real process.
 */
export class VirtualTime {
  nowMs = 0;
  events = 0;
  private readonly heap: Planned[] = [];
  private planned = 0;

  at(delayMs: number, run: () => void): Timer {
    return this.atTime(this.nowMs + Math.max(0, delayMs), run);
  }

  /** At an absolute time: a sum of the present and a difference to it may be off by the last digit, and change an order. */
  atTime(atMs: number, run: () => void): Timer {
    const event: Planned = { atMs: Math.max(this.nowMs, atMs), order: this.planned++, run };
    this.push(event);
    return {
      cancel: () => {
        event.run = undefined;
      },
    };
  }

  /** Lets time pass until `untilMs`, or until `isDone` says so after an event, or until nothing is planned. */
  run(untilMs: number, isDone: () => boolean): Promise<void> {
    return new Promise((resolve, reject) => {
      const next = (): void => {
        if (isDone()) return resolve();
        let event = this.pop(untilMs);
        while (event && !event.run) event = this.pop(untilMs);
        if (!event) {
          this.nowMs = Math.max(this.nowMs, untilMs);
          return resolve();
        }
        this.nowMs = event.atMs;
        this.events++;
        try {
          event.run?.();
        } catch (error) {
          return reject(error as Error);
        }
        queueMicrotask(() => process.nextTick(next));
      };
      setImmediate(next);
    });
  }

  private push(event: Planned): void {
    const { heap } = this;
    let at = heap.length;
    heap.push(event);
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (!isBefore(event, heap[parent] as Planned)) break;
      heap[at] = heap[parent] as Planned;
      at = parent;
    }
    heap[at] = event;
  }

  private pop(untilMs: number): Planned | undefined {
    const { heap } = this;
    const top = heap[0];
    if (!top || top.atMs > untilMs) return undefined;
    const last = heap.pop() as Planned;
    if (heap.length > 0) this.sink(last);
    return top;
  }

  private sink(event: Planned): void {
    const { heap } = this;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= heap.length) break;
      if (child + 1 < heap.length && isBefore(heap[child + 1] as Planned, heap[child] as Planned)) child++;
      if (!isBefore(heap[child] as Planned, event)) break;
      heap[at] = heap[child] as Planned;
      at = child;
    }
    heap[at] = event;
  }
}

function isBefore(one: Planned, other: Planned): boolean {
  return one.atMs < other.atMs || (one.atMs === other.atMs && one.order < other.order);
}
