import { EgressPolicy, isAtRev, type egressPb } from '@margay/contracts';
import { AbortedError, NotFoundError, PermissionDeniedError } from '@margay/errors';
import type { GrpcHandlers } from '@margay/platform';

/** The one policy that session would keep. */
export class FakeEgressPolicy {
  stored: egressPb.StoredEgressPolicy | undefined = { policyJson: JSON.stringify(EgressPolicy.parse({})), rev: 1 };

  handlers(): GrpcHandlers<typeof egressPb.EgressDefinition> {
    const unknown = () => Promise.reject(new Error('not part of these specs'));
    return {
      getEgressPolicy: async () => {
        if (!this.stored) throw new NotFoundError('egress_policy_not_found', 'there is none');
        return Promise.resolve({ policy: this.stored });
      },
      putEgressPolicy: async ({ policyJson, ifRev }) => {
        const rev = this.stored?.rev ?? 0;
        if (!isAtRev(ifRev, rev)) throw new AbortedError('rev_moved', 'it is at another revision');
        if (EgressPolicy.parse(JSON.parse(policyJson)).mode === 'public')
          throw new PermissionDeniedError('setting_locked', 'mode: the operator allows allowlist at most');
        this.stored = { policyJson, rev: rev + 1 };
        return Promise.resolve({ policy: this.stored, created: rev === 0 });
      },
      listEgressPolicies: unknown,
      noteDenial: unknown,
    };
  }
}
