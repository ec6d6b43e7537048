import type { OutgoingHttpHeaders, ServerResponse } from 'node:http';
import type { FastifyReply } from 'fastify';
import type { CutReason } from '../metrics';
import type { StreamSettings } from './settings';
import type { SocketWheel } from './socket-wheel';

const HEARTBEAT = Buffer.from(': heartbeat\n\n');
const HEADERS = {
  'content-type': 'text/event-stream; charset=utf-8',
  'cache-control': 'no-cache, no-transform',
  'x-accel-buffering': 'no',
};

export interface SseSocketOptions {
  settings: StreamSettings;
  wheel: SocketWheel;
  onCut: (reason: CutReason) => void;
  onClosed: () => void;
}

/** The response side of one stream. There is no queue beyond the socket: who does not read is cut. */
export class SseSocket {
  lastWriteMs = performance.now();
  /** Since when the client owes a drain. */
  stalledSinceMs: number | undefined;
  /** Place in the wheel. */
  slot = 0;
  isClosed = false;
  private readonly response: ServerResponse;
  private isOpen = false;
  private waiting?: () => void;

  constructor(
    private readonly reply: FastifyReply,
    private readonly options: SseSocketOptions,
  ) {
    this.response = reply.raw;
    this.response.once('close', () => this.closed());
  }

  /** Takes the reply over and sends the head; from here on errors can only cut. */
  open(): void {
    if (this.isOpen || this.isClosed) return;
    this.isOpen = true;
    this.reply.hijack();
    this.response.on('drain', () => this.drained());
    const before = this.reply.getHeaders() as OutgoingHttpHeaders;
    this.response.writeHead(200, { ...before, ...HEADERS, 'x-request-id': this.reply.request.id });
    this.response.flushHeaders();
    this.options.wheel.add(this);
  }

  /** The reply will be used otherwise, or nobody is there to reply to. */
  abandon(): void {
    this.closed();
  }

  /** Sends at once, or cuts a client that is too far behind; it may be behind by `allowedBytes` more. */
  write(bytes: Buffer, allowedBytes = 0): void {
    if (this.isClosed) return;
    const maxBytes = this.options.settings.maxUnsentBytes + allowedBytes;
    if (this.stalledSinceMs !== undefined && this.response.writableLength > maxBytes) {
      this.cut('slow');
      return;
    }
    this.lastWriteMs = performance.now();
    if (!this.response.write(bytes) && this.stalledSinceMs === undefined) this.stalledSinceMs = this.lastWriteMs;
  }

  /** Sends what may be lost, unless the client has much to take already. */
  offer(bytes: Buffer): void {
    if (this.response.writableLength <= this.options.settings.maxUnsentBytes / 2) this.write(bytes);
  }

  heartbeat(): void {
    if (this.stalledSinceMs === undefined) this.write(HEARTBEAT);
  }

  /** Resolves when the client has taken what was sent, or is gone. */
  async ready(): Promise<void> {
    if (this.stalledSinceMs === undefined || this.isClosed) return;
    await new Promise<void>((resolve) => {
      this.waiting = resolve;
    });
  }

  /** The regular end of the response. */
  end(): void {
    if (this.isClosed) return;
    this.closed();
    if (!this.isOpen) {
      // Nothing was promised yet: a broken connection says "again" better than an empty answer.
      this.response.destroy();
      return;
    }
    // Whoever does not take the rest is not waited for.
    this.response.setTimeout(this.options.settings.stallMs, () => this.response.destroy());
    this.response.end();
  }

  /** The client sees a broken connection and comes back with its cursor. */
  cut(reason: CutReason): void {
    if (this.isClosed) return;
    this.options.onCut(reason);
    this.closed();
    this.response.destroy();
  }

  private drained(): void {
    this.stalledSinceMs = undefined;
    this.release();
  }

  private closed(): void {
    if (this.isClosed) return;
    this.isClosed = true;
    if (this.isOpen) this.options.wheel.delete(this);
    this.release();
    this.options.onClosed();
  }

  private release(): void {
    this.waiting?.();
    delete this.waiting;
  }
}
