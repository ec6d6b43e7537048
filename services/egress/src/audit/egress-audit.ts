import type { EgressRecord } from './egress-record';

/** What happened alike within a minute. */
export interface EgressSummary extends Omit<EgressRecord, 'method' | 'path' | 'why'> {
  count: number;
}

export type AuditLine = EgressRecord | EgressSummary;

/** Bounds what a minute may keep: beyond it lines are written at once, so that nothing is lost. */
const MAX_KINDS = 5_000;
/** Denials of these kinds come in floods and say nothing new. */
const NOT_SINGLY = new Set(['egress_limit', 'egress_identity']);

/** Writes denials and uses of credentials singly and sums up the rest; `flush` is called every minute and at the end. */
export class EgressAudit {
  private readonly kinds = new Map<string, EgressSummary>();

  constructor(private readonly write: (line: AuditLine) => void) {}

  record(record: EgressRecord): void {
    const isDenial = record.decision === 'denied' && !NOT_SINGLY.has(record.reason ?? '');
    const isSingle = isDenial || record.credential !== undefined;
    if (isSingle) return this.write(record);
    const { tenantId, sandboxId, service, host, port, rule, reason, status } = record;
    const key = JSON.stringify([tenantId, sandboxId, service, host, port, rule, reason, status]);
    const known = this.kinds.get(key);
    if (known) return add(known, record);
    if (this.kinds.size >= MAX_KINDS) this.flush();
    const { method: _method, path: _path, why: _why, ...rest } = record;
    this.kinds.set(key, { ...rest, count: 1 });
  }

  flush(): void {
    for (const summary of this.kinds.values()) this.write(summary);
    this.kinds.clear();
  }
}

function add(summary: EgressSummary, { bytesUp, bytesDown, ms }: EgressRecord): void {
  summary.count += 1;
  summary.bytesUp += bytesUp;
  summary.bytesDown += bytesDown;
  summary.ms += ms;
}
