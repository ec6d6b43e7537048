import type { LoggerService } from '@nestjs/common';
import type { Logger } from './logger';

/** Sends what Nest says about itself to our logger; its start-up chatter only at debug. */
export function nestLogger(logger: Logger): LoggerService {
  const contextOf = (parameters: unknown[]) => ({ context: String(parameters.at(-1) ?? 'nest') });
  return {
    log: (message: unknown, ...parameters: unknown[]) => logger.debug(contextOf(parameters), String(message)),
    debug: (message: unknown, ...parameters: unknown[]) => logger.debug(contextOf(parameters), String(message)),
    verbose: (message: unknown, ...parameters: unknown[]) => logger.debug(contextOf(parameters), String(message)),
    warn: (message: unknown, ...parameters: unknown[]) => logger.warn(contextOf(parameters), String(message)),
    error: (message: unknown, ...parameters: unknown[]) =>
      logger.error(
        { ...contextOf(parameters), ...(message instanceof Error && { err: message }) },
        'nest reports an error',
      ),
  };
}
