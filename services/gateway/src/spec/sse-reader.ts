import { get, type ClientRequest, type IncomingMessage } from 'node:http';

export interface SseFrame {
  type: string;
  ts?: string;
  seq?: number;
  payload?: Record<string, unknown>;
  [field: string]: unknown;
}

const PATIENCE_MS = 60_000;

/** Reads a stream byte by byte, so that specs see exactly what was sent. */
export class SseReader {
  text = '';
  /** `clean`: the response ended; `cut`: the connection broke. */
  ended: 'clean' | 'cut' | undefined;
  private readonly waiting = new Set<() => void>();

  private constructor(
    private readonly request: ClientRequest,
    readonly response: IncomingMessage,
  ) {
    response.setEncoding('utf8');
    response.on('data', (chunk: string) => {
      this.text += chunk;
      this.wake();
    });
    response.on('end', () => this.end('clean'));
    response.on('error', () => this.end('cut'));
  }

  static open(url: string, headers: Record<string, string>): Promise<SseReader> {
    return new Promise((resolve, reject) => {
      const request = get(url, { headers, agent: false }, (response) => resolve(new SseReader(request, response)));
      request.on('error', reject);
    });
  }

  get status(): number {
    return this.response.statusCode ?? 0;
  }

  /** Frames so far, comments left out. */
  get frames(): SseFrame[] {
    const blocks = this.text.split('\n\n').slice(0, -1);
    return blocks.flatMap((block) => {
      const data = block.split('\n').find((line) => line.startsWith('data: '));
      return data === undefined ? [] : [JSON.parse(data.slice('data: '.length)) as SseFrame];
    });
  }

  get types(): string[] {
    return this.frames.map(({ type }) => type);
  }

  /** Resolves when the condition holds; rejects with what was read so far if it does not come true. */
  async until(condition: (reader: SseReader) => boolean): Promise<this> {
    const deadline = performance.now() + PATIENCE_MS;
    while (!condition(this)) {
      const leftMs = deadline - performance.now();
      if (leftMs <= 0) throw new Error(`not in time; ended: ${this.ended}; read: ${this.text.slice(-2_000)}`);
      await this.change(leftMs);
    }
    return this;
  }

  untilType(type: string, count = 1): Promise<this> {
    return this.until(({ types }) => types.filter((seen) => seen === type).length >= count);
  }

  untilEnd(): Promise<this> {
    return this.until(({ ended }) => ended !== undefined);
  }

  close(): void {
    this.request.destroy();
  }

  private change(limitMs: number): Promise<void> {
    return new Promise((resolve) => {
      const done = () => {
        clearTimeout(timer);
        this.waiting.delete(done);
        resolve();
      };
      const timer = setTimeout(done, limitMs);
      this.waiting.add(done);
    });
  }

  private end(how: 'clean' | 'cut'): void {
    this.ended ??= how;
    this.wake();
  }

  private wake(): void {
    for (const done of this.waiting) done();
  }
}
