import { USUAL_SANDBOX_CLASS, type executorPb } from '@margay/contracts';
import { systemPrincipal, type GrpcClient, type Logger } from '@margay/platform';

type Executor = Pick<GrpcClient<typeof executorPb.ExecutorDefinition>, 'listTools'>;

const ASK_EVERY_MS = 60_000;
const RETRY_MS = 2_000;
const ASK_TIMEOUT_MS = 2_000;
/** The usual isolations, and none told: not worth a word. */
const USUAL = new Set(['bwrap', 'pod', '']);

/**
 * How sandboxes are kept apart here, and of which classes they can be, as tool-executor says; asked in the background, so
 * that nothing waits for it.
 */
export class SandboxIsolation {
  private known: string | undefined;
  private classes: readonly string[] = [];
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

  /**
   * Whether sandboxes can be of that class; one that is not known is asked for at once: it may be new.
   * @returns true also where nobody can tell now; else the classes that there are
   */
  async offers(name: string): Promise<true | readonly string[]> {
    // The usual one there always is; nobody waits for tool-executor to say so.
    if (name === USUAL_SANDBOX_CLASS || this.classes.includes(name)) return true;
    const isTold = await this.learn();
    return !isTold || this.classes.length === 0 || this.classes.includes(name) || this.classes;
  }

  start(): void {
    void this.ask();
  }

  stop(): void {
    this.isStopped = true;
    clearTimeout(this.timer);
  }

  private async ask(): Promise<void> {
    const isTold = await this.learn();
    if (this.isStopped) return;
    this.timer = setTimeout(() => void this.ask(), isTold ? ASK_EVERY_MS : RETRY_MS);
    this.timer.unref();
  }

  private async learn(): Promise<boolean> {
    try {
      const principal = systemPrincipal('session', '_platform');
      const told = await this.executor.listTools({}, { principal, timeoutMs: ASK_TIMEOUT_MS });
      this.known = told.isolation;
      this.classes = told.sandboxClasses;
      return true;
    } catch (error) {
      this.logger.debug({ err: error }, 'tool-executor could not be asked how it isolates');
      return false;
    }
  }
}
