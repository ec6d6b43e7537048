import type { ToolDescriptor } from '@margay/contracts';
import { Injectable } from '@nestjs/common';

@Injectable()
export class ToolsService {
  /** No MCP server can be configured yet, so no tenant has tools from one. */
  list(_tenantId: string): ToolDescriptor[] {
    return [];
  }
}
