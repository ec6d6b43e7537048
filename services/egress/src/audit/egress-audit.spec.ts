import { EgressAudit, type AuditLine } from './egress-audit';
import type { EgressRecord } from './egress-record';

const record: EgressRecord = {
  at: 1,
  tenantId: 't1',
  sandboxId: 'b1',
  host: 'a.example',
  port: 443,
  status: 200,
  bytesUp: 10,
  bytesDown: 20,
  ms: 5,
  rule: 'a',
  decision: 'allowed',
};

describe('the audit', () => {
  let lines: AuditLine[];
  let audit: EgressAudit;
  beforeEach(() => {
    lines = [];
    audit = new EgressAudit((line) => lines.push(line));
  });

  it('writes each denial at once', () => {
    const denial: EgressRecord = { ...record, decision: 'denied', reason: 'egress_denied', status: 403, path: '/x' };
    audit.record(denial);
    audit.record(denial);
    expect(lines).toEqual([denial, denial]);
  });

  it('sums up the rest by what is alike', () => {
    audit.record({ ...record, method: 'GET', path: '/one' });
    audit.record({ ...record, at: 2, method: 'GET', path: '/two' });
    audit.record({ ...record, host: 'b.example' });
    for (let index = 0; index < 3; index += 1)
      audit.record({ ...record, decision: 'denied', reason: 'egress_limit', status: 429 });
    expect(lines).toEqual([]);
    audit.flush();
    expect(lines).toEqual([
      { ...record, bytesUp: 20, bytesDown: 40, ms: 10, count: 2 },
      { ...record, host: 'b.example', count: 1 },
      expect.objectContaining({ reason: 'egress_limit', count: 3 }),
    ]);
    audit.flush();
    expect(lines).toHaveLength(3);
  });

  it('loses nothing when there are very many kinds', () => {
    for (let port = 1; port <= 6_000; port += 1) audit.record({ ...record, port });
    audit.flush();
    expect(lines).toHaveLength(6_000);
  });
});
