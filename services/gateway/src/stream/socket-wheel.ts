import type { SseSocket } from './sse-socket';
import type { StreamSettings } from './settings';

const SLOTS = 16;

/** One timer for the heartbeats and time-outs of all streams: each socket is looked at about once per heartbeat. */
export class SocketWheel {
  private readonly slots = Array.from({ length: SLOTS }, () => new Set<SseSocket>());
  private readonly tickMs: number;
  private hand = 0;
  private timer: NodeJS.Timeout | undefined;

  constructor(private readonly settings: StreamSettings) {
    this.tickMs = settings.heartbeatMs / (SLOTS - 1);
  }

  start(): void {
    this.timer = setInterval(() => this.tick(), this.tickMs).unref();
  }

  stop(): void {
    clearInterval(this.timer);
  }

  add(socket: SseSocket): void {
    this.place(socket, Math.min(this.settings.heartbeatMs, this.settings.stallMs));
  }

  delete(socket: SseSocket): void {
    this.slots[socket.slot]?.delete(socket);
  }

  private tick(): void {
    this.hand = (this.hand + 1) % SLOTS;
    const due = [...(this.slots[this.hand] as Set<SseSocket>)];
    this.slots[this.hand]?.clear();
    const nowMs = performance.now();
    for (const socket of due) this.visit(socket, nowMs);
  }

  private visit(socket: SseSocket, nowMs: number): void {
    const { heartbeatMs, stallMs } = this.settings;
    if (socket.stalledSinceMs !== undefined) {
      const leftMs = socket.stalledSinceMs + stallMs - nowMs;
      if (leftMs <= 0) socket.cut('stalled');
      else this.place(socket, leftMs);
      return;
    }
    const leftMs = socket.lastWriteMs + heartbeatMs - nowMs;
    if (leftMs <= this.tickMs / 2) socket.heartbeat();
    // A socket that stalls meanwhile must be seen before its time is up.
    if (!socket.isClosed) this.place(socket, Math.min(leftMs <= this.tickMs / 2 ? heartbeatMs : leftMs, stallMs));
  }

  private place(socket: SseSocket, inMs: number): void {
    const ahead = Math.min(SLOTS - 1, Math.max(1, Math.ceil(inMs / this.tickMs)));
    socket.slot = (this.hand + ahead) % SLOTS;
    this.slots[socket.slot]?.add(socket);
  }
}
