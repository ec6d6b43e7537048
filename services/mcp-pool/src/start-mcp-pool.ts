import 'reflect-metadata';
import { mcpPb } from '@margay/contracts';
import { parseConfig, startGrpcApplication, type RunningService, type ServiceShared } from '@margay/platform';
import { AppModule } from './app.module';
import { McpPoolConfig } from './config';
import { ToolsGrpc } from './tools/tools.grpc';

export async function startMcpPool(environment: NodeJS.ProcessEnv, shared: ServiceShared): Promise<RunningService> {
  const config = parseConfig(McpPoolConfig, environment);
  return startGrpcApplication({
    service: 'mcp-pool',
    module: AppModule,
    listen: config.MARGAY_MCP_POOL_LISTEN,
    keysDirectory: config.MARGAY_KEYS_DIR,
    shared,
    serve: (server, application) => server.add(mcpPb.McpDefinition, application.get(ToolsGrpc)),
  });
}
