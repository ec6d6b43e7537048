import { isMargayError } from '@margay/errors';

export type CheckKind = 'live' | 'ready' | 'startup';
/** Throw to fail; return `{ degraded }` to say in words what works worse without taking the process out of service. */
export type Check = () => void | { degraded?: string } | Promise<void | { degraded?: string }>;

export interface HealthReport {
  status: 'ok' | 'degraded' | 'failed';
  failed?: string[];
  checks: Record<string, { status: 'ok' | 'degraded' | 'failed'; detail?: string }>;
}

type Outcome = HealthReport['checks'][string];

/** Named checks by kind; each gets two seconds, all run at once. */
export class HealthChecks {
  private readonly checks: { name: string; kind: CheckKind; check: Check }[] = [];

  constructor(private readonly timeoutMs = 2_000) {}

  add(name: string, kind: CheckKind, check: Check): () => void {
    const entry = { name, kind, check };
    this.checks.push(entry);
    return () => void this.checks.splice(this.checks.indexOf(entry), 1);
  }

  async report(kind: CheckKind): Promise<HealthReport> {
    const due = this.checks.filter((entry) => entry.kind === kind);
    const outcomes = await Promise.all(due.map(async ({ name, check }) => [name, await this.run(check)] as const));
    const failed = outcomes.filter(([, { status }]) => status === 'failed').map(([name]) => name);
    const isDegraded = outcomes.some(([, { status }]) => status === 'degraded');
    const checks = Object.fromEntries(outcomes);
    if (failed.length > 0) return { status: 'failed', failed, checks };
    return { status: isDegraded ? 'degraded' : 'ok', checks };
  }

  private async run(check: Check): Promise<Outcome> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<Outcome>((resolve) => {
      const outcome: Outcome = { status: 'failed', detail: `no answer in ${this.timeoutMs} ms` };
      timer = setTimeout(() => resolve(outcome), this.timeoutMs);
    });
    try {
      return await Promise.race([late, settle(check)]);
    } finally {
      clearTimeout(timer);
    }
  }
}

async function settle(check: Check): Promise<Outcome> {
  try {
    const result = await check();
    return result?.degraded ? { status: 'degraded', detail: result.degraded } : { status: 'ok' };
  } catch (error) {
    // Texts of foreign errors may hold addresses with passwords, so only our own are shown.
    return { status: 'failed', detail: isMargayError(error) ? error.message : 'failed, see the log' };
  }
}
