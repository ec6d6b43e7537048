import { setTimeout as sleep } from 'node:timers/promises';
import { ToolDescriptor, type executorPb } from '@margay/contracts';
import { isMargayError } from '@margay/errors';
import { systemPrincipal, type GrpcClient, type Logger } from '@margay/platform';

const CACHE_MS = 60_000;
const RETRY_FIRST_MS = 50;
const RETRY_MAX_MS = 2_000;

/** Descriptors of all tools, asked once a minute. */
export class ToolCatalogue {
  private cached?: { tools: ToolDescriptor[]; untilMs: number };
  private asking?: Promise<ToolDescriptor[]>;

  constructor(
    private readonly client: GrpcClient<typeof executorPb.ExecutorDefinition>,
    private readonly logger: Logger,
  ) {}

  /** Waits for a tool-executor that can't be reached, until the signal aborts; then it rejects with its reason. */
  async list(signal: AbortSignal): Promise<ToolDescriptor[]> {
    for (let delayMs = RETRY_FIRST_MS; ; delayMs = Math.min(delayMs * 2, RETRY_MAX_MS)) {
      if (this.cached && this.cached.untilMs > performance.now()) return this.cached.tools;
      try {
        return await (this.asking ??= this.ask());
      } catch (error) {
        if (!isMargayError(error) || !error.retryable) throw error;
        this.logger.warn({ err: error }, 'the tools could not be listed; trying again');
      } finally {
        delete this.asking;
      }
      await sleep(delayMs, undefined, { signal }).catch(() => undefined);
      signal.throwIfAborted();
    }
  }

  private async ask(): Promise<ToolDescriptor[]> {
    const { toolsJson } = await this.client.listTools({}, { principal: systemPrincipal('agent-runner', '_platform') });
    const tools = toolsJson.map((json) => ToolDescriptor.parse(JSON.parse(json)));
    this.cached = { tools, untilMs: performance.now() + CACHE_MS };
    return tools;
  }
}
