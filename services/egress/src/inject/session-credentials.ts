import { secretsPb } from '@margay/contracts';
import { isMargayError, UnavailableError } from '@margay/errors';
import { grpcClient, hideInLogs, systemPrincipal, type GrpcClient, type KeyRing, type Logger } from '@margay/platform';
import { Credentials, type Credential, type CredentialQuery } from './credential';

const TIMEOUT_MS = 5_000;
const NONE = new Set(['NOT_FOUND', 'PERMISSION_DENIED']);
/** What a secret may have been made for; git accounts are found by name, too. */
const PURPOSES = ['egress', 'git'] as const;

/** Asks session, which keeps the secrets. */
export class SessionCredentials extends Credentials {
  private readonly client: GrpcClient<typeof secretsPb.SecretsDefinition>;

  constructor(address: string, keys: KeyRing, logger: Logger) {
    super();
    this.client = grpcClient(secretsPb.SecretsDefinition, address, { keys, logger });
  }

  async find(query: CredentialQuery): Promise<Credential | undefined> {
    for (const purpose of query.name === undefined ? (['git'] as const) : PURPOSES) {
      const found = await this.use(query, purpose);
      if (found) return found;
    }
    return undefined;
  }

  close(): void {
    this.client.close();
  }

  private async use(query: CredentialQuery, purpose: string): Promise<Credential | undefined> {
    const { tenantId, sessionId, host, name = '', repository } = query;
    const options = { principal: systemPrincipal('egress', tenantId), timeoutMs: TIMEOUT_MS };
    const git = name === '' ? { host, path: repository ?? '' } : undefined;
    try {
      const used = await this.client.useSecret({ purpose, name, git, host, sessionId }, options);
      const { name: found, value, git: account, expiresAt } = used;
      hideInLogs(found, value);
      return { name: found, value, ...(account && { username: account.username }), ...(expiresAt && { expiresAt }) };
    } catch (cause) {
      if (isMargayError(cause) && NONE.has(cause.code)) return undefined;
      throw new UnavailableError('egress_unavailable', 'The credential of this rule cannot be had now; try again.', {
        cause,
      });
    }
  }
}
