import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { text } from 'node:stream/consumers';

export const CLASSES = ['pure', 'keyed', 'unkeyed'] as const;
export type EffectClass = (typeof CLASSES)[number];

export interface EffectRequest {
  effect: EffectClass;
  key: string;
  /** Which effect is meant, by the arguments. */
  name: string;
  /** The caller gave up before it was answered. */
  aborted: boolean;
}

/**
 * The world outside: counts what really happens. A keyed effect happens once per key, as at any service that knows
 * idempotency keys; an unkeyed one each time it is asked for.
 */
export class EffectServer {
  readonly requests: EffectRequest[] = [];
  private readonly happened = new Map<string, number>();
  private readonly keys = new Set<string>();
  private held: Promise<void> | undefined;
  private arrivals: (() => void)[] = [];
  /** How long answers take. */
  delayMs = 0;

  private constructor(private readonly server: Server) {
    server.on('request', (request: IncomingMessage, response: ServerResponse) => void this.serve(request, response));
  }

  static async start(): Promise<EffectServer> {
    const server = createServer({ requestTimeout: 0 });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    return new EffectServer(server);
  }

  /** The content of a tools file: one tool per class, and one that an interrupt ends. */
  get tools(): object[] {
    const { port } = this.server.address() as AddressInfo;
    const tool = (name: string, effect: EffectClass, more: object = {}): object => ({
      name,
      description: `Has a ${effect} effect.`,
      parameters: { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] },
      url: `http://127.0.0.1:${port}/${effect}`,
      effect,
      timeout_seconds: 60,
      ...more,
    });
    return [
      ...CLASSES.map((effect) => tool(effect, effect)),
      tool('stoppable', 'pure', { interrupt_behavior: 'cancel' }),
    ];
  }

  /** How often the effect happened. */
  times(name: string): number {
    return this.happened.get(name) ?? 0;
  }

  of(name: string): EffectRequest[] {
    return this.requests.filter((request) => request.name === name);
  }

  /** From here on effects happen and nobody is told. @returns lets the answers go */
  hold(): () => void {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.held = promise;
    return () => {
      if (this.held === promise) this.held = undefined;
      resolve();
    };
  }

  /** Resolves once so many requests for it have come. */
  async asked(name: string, count = 1): Promise<void> {
    while (this.of(name).length < count) await new Promise<void>((resolve) => this.arrivals.push(resolve));
  }

  async close(): Promise<void> {
    const closed = once(this.server, 'close');
    this.server.close();
    this.server.closeAllConnections();
    await closed;
  }

  private async serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const effect = CLASSES.find((known) => request.url === `/${known}`) ?? 'pure';
    const { name } = JSON.parse(await text(request)) as { name: string };
    const record = { effect, key: String(request.headers['idempotency-key']), name, aborted: false };
    response.once('close', () => (record.aborted = !response.writableFinished));
    this.happen(record);
    this.requests.push(record);
    for (const wake of this.arrivals.splice(0)) wake();
    await delay(this.delayMs);
    await this.held;
    response.setHeader('content-type', 'application/json').end(JSON.stringify({ did: name }));
  }

  private happen({ effect, key, name }: EffectRequest): void {
    if (effect === 'pure' || (effect === 'keyed' && this.keys.has(key))) return;
    this.keys.add(key);
    this.happened.set(name, this.times(name) + 1);
  }
}
