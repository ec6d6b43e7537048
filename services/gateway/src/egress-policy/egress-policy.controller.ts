import { Controller, Headers } from '@nestjs/common';
import { EgressPolicy, type egressPb } from '@margay/contracts';
import { InternalError } from '@margay/errors';
import type { Caller } from '../auth/admission';
import { Backends } from '../backends';
import { Answer } from '../http/answer';
import { Operation } from '../http/operation';
import { FromBody, FromCaller } from '../http/parameters';
import { etagOf, wantedRev, WriteHeaders } from '../http/revision';

const OF_POLICIES = {
  service: 'session',
  family: 'margay',
  errors: 'envelope',
  path: '/api/egress-policy',
} as const;
const EXAMPLE = {
  rules: [
    { id: 'packages', hosts: ['packages.example.com', '*.cdn.example.com'] },
    { id: 'git', hosts: ['git.example.com'], intercept: true, inject: { credential: 'git/team', as: 'basic' } },
  ],
};

/** What the sandboxes of a tenant may reach; acts within five seconds. */
@Controller()
export class EgressPolicyController {
  constructor(private readonly backends: Backends) {}

  @Operation({
    ...OF_POLICIES,
    method: 'GET',
    scope: 'settings.read',
    summary: 'What sandboxes of the tenant may reach, as it was stored; 404 where what the operator has set holds',
    responses: { 200: { description: 'the policy, its revision in `ETag`', schema: EgressPolicy } },
    sample: { status: 200 },
  })
  async get(@FromCaller() { call }: Caller): Promise<Answer> {
    const { policy } = await this.backends.egress.getEgressPolicy({}, call);
    return answerOf(200, policy);
  }

  @Operation({
    ...OF_POLICIES,
    method: 'PUT',
    scope: 'settings.write',
    summary: 'Store what sandboxes of the tenant may reach, never more than the operator allows',
    headers: WriteHeaders,
    body: EgressPolicy,
    responses: {
      200: { description: 'what is stored, its revision in `ETag`', schema: EgressPolicy },
      201: { description: 'there was none before', schema: EgressPolicy },
    },
    sample: { body: EXAMPLE, status: 200 },
  })
  async put(
    @FromCaller() { call }: Caller,
    @FromBody() body: EgressPolicy,
    @Headers('if-match') ifMatch?: string,
    @Headers('if-none-match') ifNoneMatch?: string,
  ): Promise<Answer> {
    const request = { policyJson: JSON.stringify(body), ifRev: wantedRev(ifMatch, ifNoneMatch) };
    const { policy, created } = await this.backends.egress.putEgressPolicy(request, call);
    return answerOf(created ? 201 : 200, policy);
  }
}

function answerOf(status: number, policy: egressPb.StoredEgressPolicy | undefined): Answer {
  if (!policy) throw new InternalError('internal', 'session answered without the egress policy');
  return new Answer(status, JSON.parse(policy.policyJson) as unknown, etagOf(policy));
}
