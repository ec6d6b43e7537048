import type { EngineEvent } from './engine-options';

/** The events of a run as they come. Leaving the loop does not stop the run. */
export class RunStream<Result> implements AsyncIterable<EngineEvent> {
  private readonly waiting: EngineEvent[] = [];
  private wake: () => void = () => undefined;
  private isOver = false;

  /** @param result how the run ends; it may be awaited with or without the events */
  constructor(readonly result: Promise<Result>) {
    const end = (): void => {
      this.isOver = true;
      this.wake();
    };
    result.then(end, end);
  }

  push(event: EngineEvent): void {
    if (this.isOver) return;
    this.waiting.push(event);
    this.wake();
  }

  async *[Symbol.asyncIterator](): AsyncIterator<EngineEvent> {
    for (;;) {
      const next = this.waiting.shift();
      if (next) yield next;
      else if (this.isOver) return;
      else await new Promise<void>((resolve) => (this.wake = resolve));
    }
  }
}
