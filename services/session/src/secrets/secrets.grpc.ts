import type { secretsPb } from '@margay/contracts';
import type { GrpcHandlers } from '@margay/platform';
import { scopeName, type SecretsService } from './secrets.service';
import type { SecretUse } from './secret-use';
import type { SecretRow } from './secret.repository';

export interface SecretsGrpcPorts {
  secrets: SecretsService;
  use: SecretUse;
}

export function secretsHandlers({ secrets, use }: SecretsGrpcPorts): GrpcHandlers<typeof secretsPb.SecretsDefinition> {
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
