import type { Refusal } from '../driver/sandbox-driver';

const FIRST_MS = 5_000;
const MAX_MS = 60_000;

type QuotaRefusal = Pick<Refusal, 'reason' | 'message' | 'retryAfterMs'>;

interface Pause {
  untilMs: number;
  nextMs: number;
  message: string;
}

/** After a namespace's quota refused a pod, none is asked for there by this replica for a while, longer each time. */
export class QuotaPause {
  private readonly pauses = new Map<string, Pause>();

  constructor(private readonly now: () => number = () => performance.now()) {}

  refusalIn(namespace: string): QuotaRefusal | undefined {
    const { untilMs = 0, message = '' } = this.pauses.get(namespace) ?? {};
    const retryAfterMs = untilMs - this.now();
    return retryAfterMs > 0 ? { reason: 'quota', message, retryAfterMs } : undefined;
  }

  begin(namespace: string, message: string): QuotaRefusal {
    const retryAfterMs = this.pauses.get(namespace)?.nextMs ?? FIRST_MS;
    const untilMs = this.now() + retryAfterMs;
    this.pauses.set(namespace, { untilMs, nextMs: Math.min(retryAfterMs * 2, MAX_MS), message });
    return { reason: 'quota', message, retryAfterMs };
  }

  clear(namespace: string): void {
    this.pauses.delete(namespace);
  }
}
