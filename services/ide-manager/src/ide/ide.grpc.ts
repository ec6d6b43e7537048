import type { idePb } from '@margay/contracts';
import type { CallContext, GrpcHandlers } from '@margay/platform';
import { Injectable } from '@nestjs/common';
import { IdeService } from './ide.service';

@Injectable()
export class IdeGrpc implements GrpcHandlers<idePb.IdesDefinition> {
  constructor(private readonly ides: IdeService) {}

  async getIde(request: idePb.GetIdeRequest, context: CallContext): Promise<idePb.GetIdeResponse> {
    return this.ides.get(context.principal().tenantId, request.sessionId);
  }
}
