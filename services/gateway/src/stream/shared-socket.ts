import type { CutReason } from '../metrics';
import type { SseSocket } from './sse-socket';

/** The response side of a stream of many sessions: who replays waits for its turn, who is live writes at once. */
export class SharedSocket {
  private turn: Promise<void> = Promise.resolve();
  /** Of the replay under way: a client that takes it slowly is not behind with what is live. */
  private replayBytes = 0;

  constructor(private readonly socket: SseSocket) {}

  /** Resolves when the client has taken the text and whatever others sent before it, or is gone. */
  send(text: string): Promise<void> {
    this.turn = this.turn.then(async () => {
      const bytes = Buffer.from(text);
      this.replayBytes = bytes.length;
      if (bytes.length > 0) this.socket.write(bytes);
      await this.socket.ready();
      this.replayBytes = 0;
    });
    return this.turn;
  }

  write(bytes: Buffer | string): void {
    this.socket.write(typeof bytes === 'string' ? Buffer.from(bytes) : bytes, this.replayBytes);
  }

  offer(bytes: Buffer): void {
    this.socket.offer(bytes);
  }

  cut(reason: CutReason): void {
    this.socket.cut(reason);
  }

  end(): void {
    this.socket.end();
  }
}
