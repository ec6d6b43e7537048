import { Controller, Headers, Param } from '@nestjs/common';
import type { secretsPb } from '@margay/contracts';
import { InternalError } from '@margay/errors';
import type { z } from 'zod';
import type { Caller } from '../auth/admission';
import { Backends } from '../backends';
import { Answer } from '../http/answer';
import { Operation } from '../http/operation';
import { FromBody, FromCaller, FromQuery } from '../http/parameters';
import { etagOf, RevisionHeaders, wantedRev, WriteHeaders } from '../http/revision';
import { PutBody, ScopeQuery, SecretList, SecretView, viewOf } from './secret.dto';

const OF_SECRETS = {
  service: 'session',
  family: 'margay',
  errors: 'envelope',
  scope: 'secrets.manage',
  personalScope: 'personal.manage',
  query: ScopeQuery,
} as const;
const PATH = '/api/secrets/{name}';
const NAMED = { path: { name: '{secret_name}' } };
type Query = z.infer<typeof ScopeQuery>;

/** Secrets are written here, and never read. */
@Controller()
export class SecretController {
  constructor(private readonly backends: Backends) {}

  @Operation({
    ...OF_SECRETS,
    method: 'GET',
    path: '/api/secrets',
    summary: 'Secrets of the tenant, or your own, without their values',
    responses: { 200: { description: 'the secrets', schema: SecretList } },
    sample: { query: { scope: 'tenant' }, status: 200 },
  })
  async list(@FromCaller() { call }: Caller, @FromQuery() { scope }: Query): Promise<Answer> {
    const { secrets } = await this.backends.secrets.listSecrets({ scope }, call);
    return new Answer(200, { secrets: secrets.map(viewOf) });
  }

  @Operation({
    ...OF_SECRETS,
    method: 'PUT',
    path: PATH,
    summary: 'Create or replace a secret; nothing shows its value again',
    headers: WriteHeaders,
    body: PutBody,
    responses: {
      200: { description: 'what is stored, without the value', schema: SecretView },
      201: { description: 'it was created', schema: SecretView },
    },
    sample: { ...NAMED, body: { value: 'xyz', uses: ['egress'], hosts: ['api.example.com'] }, status: 201 },
  })
  async put(
    @FromCaller() { call }: Caller,
    @Param('name') name: string,
    @FromQuery() { scope }: Query,
    @FromBody() body: PutBody,
    @Headers('if-match') ifMatch?: string,
    @Headers('if-none-match') ifNoneMatch?: string,
  ): Promise<Answer> {
    const request = requestOf(scope, name, body, wantedRev(ifMatch, ifNoneMatch));
    const { secret, created } = await this.backends.secrets.putSecret(request, call);
    if (!secret) throw new InternalError('internal', 'session answered without the secret that it has written');
    return new Answer(created ? 201 : 200, viewOf(secret), etagOf(secret));
  }

  @Operation({
    ...OF_SECRETS,
    method: 'DELETE',
    path: PATH,
    summary: 'Delete a secret; whoever keeps its value drops it within seconds',
    headers: RevisionHeaders,
    responses: { 204: { description: 'it is deleted' } },
    sample: { ...NAMED, status: 204 },
  })
  async delete(
    @FromCaller() { call }: Caller,
    @Param('name') name: string,
    @FromQuery() { scope }: Query,
    @Headers('if-match') ifMatch?: string,
  ): Promise<Answer> {
    await this.backends.secrets.deleteSecret({ scope, name, ifRev: wantedRev(ifMatch) }, call);
    return new Answer(204, undefined);
  }
}

function requestOf(scope: string, name: string, body: PutBody, ifRev: number | undefined): secretsPb.PutSecretRequest {
  const { value, kind, uses, hosts, git, expires_at: expires } = body;
  return {
    scope,
    name,
    value,
    kind,
    uses,
    hosts,
    git: git && { host: git.host, pathPrefix: git.path_prefix, username: git.username },
    expiresAt: expires ? new Date(expires) : undefined,
    ifRev,
  };
}
