import type { egressPb } from '@margay/contracts';
import type { GrpcHandlers } from '@margay/platform';
import type { DenialsService } from './denials.service';
import type { EgressPoliciesService } from './egress-policies.service';
import type { EgressPolicyRow } from './egress-policy.repository';

export interface EgressGrpcPorts {
  policies: EgressPoliciesService;
  denials: DenialsService;
}

export function egressHandlers({ policies, denials }: EgressGrpcPorts): GrpcHandlers<typeof egressPb.EgressDefinition> {
  return {
    async getEgressPolicy(_, context) {
      return { policy: storedOf(await policies.get(context.principal())) };
    },
    async putEgressPolicy(request, context) {
      const { row, isCreated } = await policies.put(context.principal(), request);
      return { policy: storedOf(row), created: isCreated };
    },
    async listEgressPolicies(request, context) {
      const { mark, policies: some, next = '' } = await policies.list(context.principal(), request);
      return { mark, unchanged: some === undefined, policies: some ?? [], next };
    },
    async noteDenial(request, context) {
      return { noted: await denials.note(context.principal(), request) };
    },
  };
}

const storedOf = ({ policy, rev }: EgressPolicyRow): egressPb.StoredEgressPolicy => ({
  policyJson: JSON.stringify(policy),
  rev,
});
