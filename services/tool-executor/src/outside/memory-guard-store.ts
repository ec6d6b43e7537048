import { GuardStore, type GuardedCall, type GuardRow, type Seen, type StoredResult } from './guard-store';

/** A guard for specs: what several processes would share, in this one. */
export class MemoryGuardStore extends GuardStore {
  private readonly rows = new Map<string, GuardRow>();
  private readonly ranks = new Map<string, number>();

  async insert(call: GuardedCall, process: string): Promise<boolean> {
    if (this.rows.has(call.callId)) return false;
    this.rows.set(call.callId, { ...call, state: 'sent', process, beat: 0, isCancelled: false });
    return true;
  }

  async find(callId: string): Promise<GuardRow | undefined> {
    const row = this.rows.get(callId);
    return row && { ...row };
  }

  async beat(process: string, callIds: readonly string[]): Promise<GuardRow[]> {
    const rows = callIds.flatMap((callId) => this.rows.get(callId) ?? []);
    for (const row of rows) if (row.state === 'sent' && row.process === process) row.beat += 1;
    return rows.map((row) => ({ ...row }));
  }

  async finish(callId: string, process: string, result: StoredResult): Promise<boolean> {
    return this.change({ callId, process }, { state: 'done', result });
  }

  async settle(seen: Seen, result: StoredResult): Promise<boolean> {
    return this.change(seen, { state: 'done', result });
  }

  async take(seen: Seen, process: string, rank: number): Promise<boolean> {
    return this.change(seen, { process, rank, beat: seen.beat + 1 });
  }

  async release(callId: string, process: string): Promise<void> {
    this.change({ callId, process }, { process: '' });
  }

  async remove(callId: string, process: string): Promise<void> {
    if (this.held({ callId, process })) this.rows.delete(callId);
  }

  async cancel(callId: string): Promise<void> {
    this.change({ callId }, { isCancelled: true });
  }

  async cancelBelow(tenantId: string, sessionId: string, rank: number): Promise<void> {
    for (const row of this.rows.values())
      if (row.tenantId === tenantId && row.sessionId === sessionId && row.rank < rank) await this.cancel(row.callId);
  }

  async raise(tenantId: string, sessionId: string, rank: number): Promise<number> {
    const key = `${tenantId}/${sessionId}`;
    const highest = Math.max(this.ranks.get(key) ?? 0, rank);
    this.ranks.set(key, highest);
    return highest;
  }

  async expire(): Promise<void> {
    // A process of specs does not live long enough.
  }

  private held({ callId, process, beat }: Partial<Seen>): GuardRow | undefined {
    const row = this.rows.get(callId ?? '');
    const isHeld = row?.state === 'sent' && (process ?? row.process) === row.process && (beat ?? row.beat) === row.beat;
    return isHeld ? row : undefined;
  }

  private change(seen: Partial<Seen>, change: Partial<GuardRow>): boolean {
    const row = this.held(seen);
    if (row) Object.assign(row, change);
    return row !== undefined;
  }
}
