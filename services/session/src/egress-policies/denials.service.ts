import { createHash } from 'node:crypto';
import type { Principal } from '@margay/contracts';
import type { SessionLog } from '../commits/session-log';
import { requireProxy } from './entitlement';

/** A sandbox can try any number of names; a transcript is for people. */
const MOST_PER_RUN = 20;
const RUNS_REMEMBERED = 1_000;

export interface Denial {
  sessionId: string;
  host: string;
  port: number;
}

/** Tells the transcript of a run, once per host, that its sandbox was refused one. */
export class DenialsService {
  private readonly told = new Map<string, Set<string>>();

  constructor(private readonly log: Pick<SessionLog, 'confirmedTip' | 'submit'>) {}

  /** @returns false where no run is under way, or its transcript tells already */
  async note(principal: Principal, { sessionId, host, port }: Denial): Promise<boolean> {
    requireProxy(principal);
    // The replica that is told need not be the one that drives the run.
    const { tenantId, run, epoch } = (await this.log.confirmedTip(sessionId)).head;
    if (tenantId !== principal.tenantId || run?.state !== 'running') return false;
    if (!this.isNew(run.id, `${host}:${port}`)) return false;
    const text = `${host}:${port} could not be reached: the egress policy does not allow it.`;
    // The id makes it once, whichever replicas are told.
    const commitId = `egress:${run.id}:${createHash('sha256').update(`${host}:${port}`).digest('hex').slice(0, 16)}`;
    const events = [{ type: 'run_note' as const, payload: { text, kind: 'egress_denied', host, port } }];
    const outcome = await this.log.submit(sessionId, { kind: 'step', commitId, runId: run.id, epoch, events, records: [] }); // prettier-ignore
    return outcome.ok;
  }

  private isNew(runId: string, address: string): boolean {
    const known = this.told.get(runId) ?? new Set();
    if (known.has(address) || known.size >= MOST_PER_RUN) return false;
    this.told.set(runId, known.add(address));
    const [oldest] = this.told.keys();
    if (this.told.size > RUNS_REMEMBERED && oldest !== undefined) this.told.delete(oldest);
    return true;
  }
}
