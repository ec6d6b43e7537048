import { ToolDescriptor, type executorPb } from '@margay/contracts';
import { systemPrincipal, type GrpcClient } from '@margay/platform';

const CACHE_MS = 60_000;

/** Descriptors of all tools, asked once a minute. */
export class ToolCatalogue {
  private cached?: { tools: Promise<ToolDescriptor[]>; untilMs: number };

  constructor(private readonly client: GrpcClient<typeof executorPb.ExecutorDefinition>) {}

  list(): Promise<ToolDescriptor[]> {
    if (this.cached && this.cached.untilMs > performance.now()) return this.cached.tools;
    const tools = this.ask();
    this.cached = { tools, untilMs: performance.now() + CACHE_MS };
    tools.catch(() => delete this.cached);
    return tools;
  }

  private async ask(): Promise<ToolDescriptor[]> {
    const { toolsJson } = await this.client.listTools({}, { principal: systemPrincipal('agent-runner', '_platform') });
    return toolsJson.map((json) => ToolDescriptor.parse(JSON.parse(json)));
  }
}
