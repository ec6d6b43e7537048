import { secretsPb } from '@margay/contracts';
import { UnavailableError } from '@margay/errors';
import {
  SecretMatcher,
  grpcClient,
  systemPrincipal,
  type GrpcClient,
  type KeyRing,
  type Logger,
} from '@margay/platform';
import { LRUCache } from 'lru-cache';

const TIMEOUT_MS = 5_000;
/** A secret that was written is known everywhere within five seconds. */
const FRESH_MS = 4_000;
const TENANTS_MAX = 1_000;

interface Known {
  etag: string;
  askedAt: number;
  matcher: SecretMatcher;
}

type PrintsClient = Pick<GrpcClient<typeof secretsPb.SecretsDefinition>, 'listSecretPrints' | 'close'>;

/** By what secrets of tenants are found, as session tells it. */
export class TenantMatchers {
  private readonly known = new LRUCache<string, Known>({ max: TENANTS_MAX });
  private readonly asking = new Map<string, Promise<SecretMatcher>>();

  constructor(
    private readonly client: PrintsClient,
    private readonly logger: Logger,
    private readonly now: () => number = () => performance.now(),
  ) {}

  static open(address: string, keys: KeyRing, logger: Logger): TenantMatchers {
    return new TenantMatchers(grpcClient(secretsPb.SecretsDefinition, address, { keys, logger }), logger);
  }

  /**
   * While session cannot be asked, what it said last counts.
   * @throws UnavailableError `secrets_unknown` where it has never said anything
   */
  of(tenantId: string): Promise<SecretMatcher> {
    const known = this.known.get(tenantId);
    if (known && this.now() - known.askedAt < FRESH_MS) return Promise.resolve(known.matcher);
    const asking = this.asking.get(tenantId) ?? this.ask(tenantId, known).finally(() => this.asking.delete(tenantId));
    this.asking.set(tenantId, asking);
    return asking;
  }

  close(): void {
    this.client.close();
  }

  private async ask(tenantId: string, known: Known | undefined): Promise<SecretMatcher> {
    const askedAt = this.now();
    const options = { principal: systemPrincipal('tool-executor', tenantId), timeoutMs: TIMEOUT_MS };
    try {
      const { etag, key, prints } = await this.client.listSecretPrints({ etag: known?.etag ?? '' }, options);
      const matcher = known?.etag === etag ? known.matcher : new SecretMatcher(key, prints);
      this.known.set(tenantId, { etag, askedAt, matcher });
      return matcher;
    } catch (cause) {
      if (!known) {
        const message = 'session does not say which secrets are to be kept out of results; try again.';
        throw new UnavailableError('secrets_unknown', message, { cause });
      }
      this.logger.debug({ err: cause, tenantId }, 'session was not asked for new secrets');
      return known.matcher;
    }
  }
}
