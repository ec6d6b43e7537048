import type { executorPb } from '@margay/contracts';
import { systemPrincipal, type GrpcClient, type Logger } from '@margay/platform';

type Executor = Pick<GrpcClient<typeof executorPb.ExecutorDefinition>, 'listTools'>;

const ASK_EVERY_MS = 60_000;
const RETRY_MS = 2_000;
const ASK_TIMEOUT_MS = 2_000;
/** The usual isolations, and none told: not worth a word. */
const USUAL = new Set(['bwrap', 'pod', '']);

/** How sandboxes are kept apart here, as tool-executor says; asked in the background, so that nothing waits for it. */
export class SandboxIsolation {
  private known: string | undefined;
  private timer?: NodeJS.Timeout;
  private isStopped = false;

  constructor(
    private readonly executor: Executor,
    private readonly logger: Logger,
  ) {}

  /** What people are to know about the sandbox of a run; undefined where it is the usual one, or not known yet. */
  get unusual(): string | undefined {
    return this.known !== undefined && USUAL.has(this.known) ? undefined : this.known;
  }

  start(): void {
    void this.ask();
  }

  stop(): void {
    this.isStopped = true;
    clearTimeout(this.timer);
  }

  private async ask(): Promise<void> {
    let againMs = ASK_EVERY_MS;
    try {
      const principal = systemPrincipal('session', '_platform');
      const { isolation } = await this.executor.listTools({}, { principal, timeoutMs: ASK_TIMEOUT_MS });
      this.known = isolation;
    } catch (error) {
      againMs = RETRY_MS;
      this.logger.debug({ err: error }, 'tool-executor could not be asked how it isolates');
    }
    if (this.isStopped) return;
    this.timer = setTimeout(() => void this.ask(), againMs);
    this.timer.unref();
  }
}
