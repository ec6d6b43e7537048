import 'reflect-metadata';
import { isMargayError } from '@margay/errors';
import { createLogger } from '@margay/platform';
import { processEnvironment } from './config';
import { startMargay } from './margay-process';
import { parseServices } from './service-names';
import { STARTERS } from './starters';
import { VERSION } from './version';

/** 0: closed cleanly; 1: something broke; 2: called or configured wrongly. */
async function main(): Promise<void> {
  const services = parseServices(process.argv.slice(2));
  const environment = processEnvironment();
  const running = await startMargay({ services, starters: STARTERS, environment, version: VERSION });
  const stop = (reason: string) =>
    running.stop(reason).then(
      () => process.exit(0),
      (error: unknown) => {
        running.logger.error({ err: error }, 'shutdown was not clean');
        process.exit(1);
      },
    );
  process.once('SIGTERM', () => void stop('SIGTERM'));
  process.once('SIGINT', () => void stop('SIGINT'));
}

function die(error: unknown): never {
  createLogger({ service: 'margay' }).error({ err: error }, 'margay ends because of an error');
  process.exit(isMargayError(error) && error.code === 'INVALID_ARGUMENT' ? 2 : 1);
}

process.on('uncaughtException', die);
process.on('unhandledRejection', die);
void main().catch(die);
