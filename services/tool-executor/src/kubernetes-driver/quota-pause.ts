import type { Refusal } from '../driver/sandbox-driver';

const FIRST_MS = 5_000;
const MAX_MS = 60_000;

/** After the namespace's quota refused a pod, none is asked for by this replica for a while, longer each time. */
export class QuotaPause {
  private untilMs = 0;
  private nextMs = FIRST_MS;
  private message = '';

  constructor(private readonly now: () => number = () => performance.now()) {}

  get refusal(): Pick<Refusal, 'reason' | 'message' | 'retryAfterMs'> | undefined {
    const retryAfterMs = this.untilMs - this.now();
    return retryAfterMs > 0 ? { reason: 'quota', message: this.message, retryAfterMs } : undefined;
  }

  begin(message: string): Pick<Refusal, 'reason' | 'message' | 'retryAfterMs'> {
    const retryAfterMs = this.nextMs;
    this.message = message;
    this.untilMs = this.now() + retryAfterMs;
    this.nextMs = Math.min(this.nextMs * 2, MAX_MS);
    return { reason: 'quota', message, retryAfterMs };
  }

  clear(): void {
    this.nextMs = FIRST_MS;
  }
}
