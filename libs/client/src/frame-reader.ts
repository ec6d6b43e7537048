import { UnavailableError } from '@margay/errors';
import { createParser, type EventSourceParser } from 'eventsource-parser';
import type { Clock } from './clock';

export interface Frame {
  data: string;
  id: string | undefined;
  /** Its `event:` line. */
  name?: string | undefined;
}

export interface FrameReaderOptions {
  clock: Clock;
  /** So long without a byte counts as a lost connection. */
  silenceMs: number;
  /** So many frames are read ahead; then the socket is left alone until the consumer catches up. */
  maxAhead: number;
  onRetry(delayMs: number): void;
}

/** Turns the body of one answer into frames, reading ahead of its consumer within a bound. */
export class FrameReader {
  readonly #queue: Frame[] = [];
  readonly #body: ReadableStreamDefaultReader<Uint8Array>;
  readonly #decoder = new TextDecoder();
  readonly #parser: EventSourceParser;
  #end: { error?: unknown } | undefined;
  #wakeConsumer: (() => void) | undefined;
  #wakePump: (() => void) | undefined;

  constructor(
    body: ReadableStream<Uint8Array>,
    private readonly options: FrameReaderOptions,
  ) {
    this.#body = body.getReader();
    this.#parser = createParser({
      onEvent: ({ data, id, event }) => this.#queue.push({ data, id, name: event }),
      onRetry: options.onRetry,
    });
    void this.#pump();
  }

  /** The next frame; undefined after a clean close. A broken or silent connection rejects (`UNAVAILABLE`, `network`). */
  async next(): Promise<Frame | undefined> {
    while (!this.#queue.length && !this.#end) await new Promise<void>((resolve) => (this.#wakeConsumer = resolve));
    const frame = this.#queue.shift();
    if (this.#queue.length < this.options.maxAhead) this.#wakePump?.();
    if (!frame && this.#end && 'error' in this.#end) throw this.#end.error;
    return frame;
  }

  /** Gives the socket back; frames that were read ahead are dropped. */
  close(): void {
    this.#finish({});
    this.#queue.length = 0;
    this.#wakePump?.();
    this.#cancel();
  }

  async #pump(): Promise<void> {
    try {
      for (;;) {
        while (this.#queue.length >= this.options.maxAhead && !this.#end)
          await new Promise<void>((resolve) => (this.#wakePump = resolve));
        if (this.#end) break;
        const bytes = await this.#read();
        if (!bytes) break;
        this.#parser.feed(this.#decoder.decode(bytes, { stream: true }));
        this.#wakeConsumer?.();
      }
      this.#finish({});
    } catch (error) {
      this.#finish({ error });
    } finally {
      this.#cancel();
    }
  }

  #read(): Promise<Uint8Array | undefined> {
    const { clock, silenceMs } = this.options;
    return new Promise((resolve, reject) => {
      const timer = clock.setTimeout(
        () => reject(new UnavailableError('network', `the stream was silent for ${silenceMs / 1000} s`)),
        silenceMs,
      );
      this.#body
        .read()
        .then(
          ({ value }) => resolve(value),
          (cause: unknown) => reject(new UnavailableError('network', 'the stream broke off', { cause })),
        )
        .finally(() => clock.clearTimeout(timer));
    });
  }

  /** Also settles a read under way, which an abort of the request alone may leave open for ever. */
  #cancel(): void {
    this.#body.cancel().catch(() => undefined); // a body that broke off gives the reason we already have
  }

  #finish(end: { error?: unknown }): void {
    this.#end ??= end;
    this.#wakeConsumer?.();
  }
}
