import type { mcpPb } from '@margay/contracts';
import type { CallContext, GrpcHandlers } from '@margay/platform';
import { Injectable } from '@nestjs/common';
import { ToolsService } from './tools.service';

/** Who may ask: a run by its grant, anyone else by a principal. */
@Injectable()
export class ToolsGrpc implements GrpcHandlers<mcpPb.McpDefinition> {
  constructor(private readonly tools: ToolsService) {}

  async listTools(_: mcpPb.ListToolsRequest, context: CallContext): Promise<mcpPb.ListToolsResponse> {
    const { tenantId } = context.hasGrant() ? context.grant() : context.principal();
    return { toolsJson: this.tools.list(tenantId).map((tool) => JSON.stringify(tool)) };
  }
}
