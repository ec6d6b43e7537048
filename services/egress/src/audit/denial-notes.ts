import { egressPb } from '@margay/contracts';
import { grpcClient, systemPrincipal, type GrpcClient, type KeyRing, type Logger } from '@margay/platform';
import { LRUCache } from 'lru-cache';
import type { EgressRecord } from './egress-record';

/** Session knows runs and tells each host once; this only spares it a flood. */
const SILENT_MS = 10_000;
const REMEMBERED = 10_000;
/** A sandbox can try any number of names, and each question is a read of the store. */
const MOST_PER_SESSION = 20;
const SESSION_MS = 60_000;
const UNDER_WAY = 50;
const TIMEOUT_MS = 5_000;

/** Has the transcript of a run tell which hosts its sandbox was refused. */
export class DenialNotes {
  private readonly client: GrpcClient<typeof egressPb.EgressDefinition>;
  private readonly told = new LRUCache<string, true>({ max: REMEMBERED, ttl: SILENT_MS });
  private readonly perSession = new LRUCache<string, number>({ max: REMEMBERED, ttl: SESSION_MS, noUpdateTTL: true });
  private underWay = 0;

  constructor(
    address: string,
    keys: KeyRing,
    private readonly logger: Logger,
  ) {
    this.client = grpcClient(egressPb.EgressDefinition, address, { keys, logger });
  }

  record({ reason, tenantId, sessionId, host, port }: EgressRecord): void {
    if (reason !== 'egress_denied' || tenantId === undefined || sessionId === undefined || host === '') return;
    const key = JSON.stringify([tenantId, sessionId, host, port]);
    const asked = this.perSession.get(sessionId) ?? 0;
    if (this.told.has(key) || this.underWay >= UNDER_WAY || asked >= MOST_PER_SESSION) return;
    this.told.set(key, true);
    this.perSession.set(sessionId, asked + 1);
    this.underWay += 1;
    const options = { principal: systemPrincipal('egress', tenantId), timeoutMs: TIMEOUT_MS };
    this.client
      .noteDenial({ sessionId, host, port }, options)
      .catch((error: unknown) => this.logger.debug({ sessionId, err: error }, 'a denial is not told in its transcript'))
      .finally(() => (this.underWay -= 1));
  }

  close(): void {
    this.client.close();
  }
}
