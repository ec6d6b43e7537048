import { Controller } from '@nestjs/common';
import { Answer } from '../http/answer';
import { Operation } from '../http/operation';
import { FromCaller } from '../http/parameters';
import type { Caller } from './admission';
import { Identity, presentIdentity } from './identity.presenter';

@Controller()
export class AuthController {
  @Operation({
    method: 'GET',
    path: '/api/auth/me',
    summary: 'Who the caller is; needs no credential',
    scope: 'optional',
    service: 'gateway',
    family: 'reference',
    errors: 'message',
    responses: { 200: { description: 'the identity', schema: Identity } },
    sample: { status: 200 },
  })
  me(@FromCaller() caller: Caller | undefined): Answer {
    return new Answer(200, presentIdentity(caller?.principal));
  }
}
