import type { secretsPb } from '@margay/contracts';
import { PermissionDeniedError } from '@margay/errors';
import type { GrpcHandlers } from '@margay/platform';
import { scopeName, type SecretsService } from './secrets.service';
import type { SecretUse } from './secret-use';
import type { SecretRow } from './secret.repository';
import type { TenantPrints } from './tenant-prints';

export interface SecretsGrpcPorts {
  secrets: SecretsService;
  use: SecretUse;
  prints: Pick<TenantPrints, 'of'>;
}

/** Where texts pass that a model or the store is to see. */
const MASKING = new Set(['tool-executor', 'gateway', 'channel', 'mcp-pool'].map((service) => `system:${service}`));

export function secretsHandlers({
  secrets,
  use,
  prints,
}: SecretsGrpcPorts): GrpcHandlers<typeof secretsPb.SecretsDefinition> {
  return {
    async listSecrets({ scope }, context) {
      return { secrets: (await secrets.list(context.principal(), scope)).map(infoOf) };
    },
    async putSecret(request, context) {
      const { row, isCreated } = await secrets.put(context.principal(), request);
      return { secret: infoOf(row), created: isCreated };
    },
    async deleteSecret(request, context) {
      await secrets.remove(context.principal(), request);
      return {};
    },
    async listSecretPrints({ etag }, context) {
      const { principal, tenantId } = context.principal();
      if (!MASKING.has(principal))
        throw new PermissionDeniedError('permission_denied', `${principal} masks no texts, so it needs no prints`);
      const known = await prints.of(tenantId);
      return known.etag === etag ? { etag, key: Buffer.alloc(0), prints: [] } : known;
    },
    async useSecret(request, context) {
      const { row, value } = await use.use(context.principal(), request);
      const { name, rev, git, expiresAt } = row;
      return { value, scope: scopeName(row), name, rev, git, expiresAt };
    },
  };
}

/** Everything but the value. */
function infoOf(row: SecretRow): secretsPb.SecretInfo {
  const { name, kind, uses, hosts, rev, fingerprint, expiresAt, updatedBy, updatedAt, lastUsedAt, git } = row;
  const terms = { name, scope: scopeName(row), kind, uses, hosts, git, expiresAt };
  return { ...terms, rev, fingerprint, updatedBy, updatedAt, lastUsedAt };
}
