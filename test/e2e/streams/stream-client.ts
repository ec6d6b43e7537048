import { Agent, get, type ClientRequest, type IncomingMessage } from 'node:http';
import { createGunzip, constants } from 'node:zlib';

const agent = new Agent({ maxSockets: Infinity });

export interface Block {
  /** `event:` of the frame; empty for frames without one. */
  name: string;
  /** Text behind `data: `. */
  data: string;
}

export interface StreamClientOptions {
  url: string;
  headers: Record<string, string>;
  /** False: `text` stays empty; for much text. */
  keepsText?: boolean;
  /** Whole frames as they come; comments are left out. */
  onBlock?: (block: Block, client: StreamClient) => void;
}

/** One connection of a stream, read as it comes; it can be left alone, or cut. */
export class StreamClient {
  text = '';
  /** `clean`: the response ended; `cut`: the connection broke; undefined while it is open. */
  ended: 'clean' | 'cut' | undefined;
  readonly openedAtMs = performance.now();
  endedAtMs = 0;
  readonly done: Promise<void>;
  private rest = '';
  private finish!: () => void;
  private readonly waiting = new Set<() => void>();

  private constructor(
    private readonly request: ClientRequest,
    readonly response: IncomingMessage,
    private readonly onBlock: StreamClientOptions['onBlock'],
    private readonly keepsText: boolean,
  ) {
    this.done = new Promise((resolve) => (this.finish = resolve));
    const isZipped = response.headers['content-encoding'] === 'gzip';
    const body = isZipped ? response.pipe(createGunzip({ flush: constants.Z_SYNC_FLUSH })) : response;
    body.setEncoding('utf8');
    body.on('data', (text: string) => this.take(text));
    body.on('end', () => this.end('clean'));
    for (const source of [body, response]) source.on('error', () => this.end('cut'));
    response.on('close', () => void (response.complete || this.end('cut')));
  }

  /** Rejects if nobody answers, or with something else than a stream. */
  static open({ url, headers, onBlock, keepsText = true }: StreamClientOptions): Promise<StreamClient> {
    return new Promise((resolve, reject) => {
      const request = get(url, { agent, headers }, (response) => {
        if (response.statusCode === 200) return resolve(new StreamClient(request, response, onBlock, keepsText));
        response.resume();
        reject(new Error(`stream answered ${response.statusCode}`));
      });
      request.on('error', reject);
    });
  }

  pause(): void {
    this.response.pause();
  }

  resume(): void {
    this.response.resume();
  }

  cut(): void {
    this.request.destroy();
  }

  /** Resolves when the text read so far fulfils the condition; rejects when the stream ends before. */
  async until(condition: (text: string) => boolean): Promise<void> {
    while (!condition(this.text)) {
      if (this.ended) throw new Error(`ended (${this.ended}) before it came: ${this.text.slice(-500)}`);
      await new Promise<void>((resolve) => this.waiting.add(resolve));
    }
  }

  private take(text: string): void {
    if (this.keepsText) this.text += text;
    const blocks = (this.rest + text).split('\n\n');
    this.rest = blocks.pop() ?? '';
    for (const block of blocks.flatMap(blockOf)) if (!this.request.destroyed) this.onBlock?.(block, this);
    this.wake();
  }

  private end(how: 'clean' | 'cut'): void {
    if (this.ended) return;
    this.ended = how;
    this.endedAtMs = performance.now();
    this.finish();
    this.wake();
  }

  private wake(): void {
    for (const resolve of this.waiting) resolve();
    this.waiting.clear();
  }
}

function blockOf(block: string): Block[] {
  const lines = block.split('\n');
  const field = (name: string) => lines.find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2);
  const data = field('data');
  return data === undefined ? [] : [{ name: field('event') ?? '', data }];
}

export const seqOf = (data: string) => (JSON.parse(data) as { seq?: number }).seq;
