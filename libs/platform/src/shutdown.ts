import { DeadlineExceededError } from '@margay/errors';
import type { Logger } from './logging/logger';

export interface ShutdownOptions {
  logger: Logger;
  /** Hard limit for all steps together. */
  limitMs: number;
  /** Called first, e.g. to turn readiness false. */
  onBegin?: () => void;
}

/** Closes what was opened, newest first, each step once, within one limit. A failing step does not keep the others open. */
export class Shutdown {
  private readonly steps: { name: string; close: () => Promise<void> | void }[] = [];
  private running?: Promise<void>;

  constructor(private readonly options: ShutdownOptions) {}

  add(name: string, close: () => Promise<void> | void): void {
    this.steps.push({ name, close });
  }

  /** Resolves when all is closed; throws DEADLINE_EXCEEDED `shutdown_timeout` naming the step that hung. A second call joins. */
  run(reason: string): Promise<void> {
    this.running ??= this.closeAll(reason);
    return this.running;
  }

  private async closeAll(reason: string): Promise<void> {
    const { logger, limitMs, onBegin } = this.options;
    logger.info({ reason }, 'shutting down');
    onBegin?.();
    let current = 'none';
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => {
      const fail = () =>
        reject(new DeadlineExceededError('shutdown_timeout', `Closing ${current} did not end within ${limitMs} ms.`));
      timer = setTimeout(fail, limitMs);
    });
    const steps = async () => {
      for (const { name, close } of this.steps.reverse()) {
        current = name;
        try {
          await close();
        } catch (error) {
          logger.error({ step: name, err: error }, 'a part did not close cleanly');
        }
      }
    };
    try {
      await Promise.race([steps(), late]);
    } finally {
      clearTimeout(timer);
    }
  }
}
