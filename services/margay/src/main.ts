import 'reflect-metadata';
import { isMargayError } from '@margay/errors';
import { createLogger } from '@margay/platform';
import { findCommand } from './commands';
import { processEnvironment } from './config';
import { startMargay } from './margay-process';
import { isOperatorCommand, parseOperatorCommand, runOperatorCommand } from './operator';
import { parseServices } from './service-names';
import { STARTERS } from './starters';
import { VERSION } from './version';

/** With it alone an agent-runner starts this program again, for a single run. */
const RUN_ALONE = '--run-alone';

/** 0: closed cleanly; 1: something broke; 2: called or configured wrongly. */
async function main(): Promise<void> {
  if (process.argv[2] === '--version') return void process.stdout.write(`${VERSION}\n`);
  if (process.argv[2] === RUN_ALONE) return (await import('@margay/agent-runner')).runAlone(processEnvironment());
  if (isOperatorCommand(process.argv.slice(2))) return operate();
  const command = findCommand(process.argv.slice(2));
  if (command) {
    const context = { environment: processEnvironment(), logger: commandLogger(), write: writeLine };
    process.exitCode = (await command(process.argv.slice(3), context)) ?? 0;
    return;
  }
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

/** One command against the store; its answer alone goes to standard output, log lines to standard error. */
async function operate(): Promise<void> {
  const command = parseOperatorCommand(process.argv.slice(2));
  const logger = commandLogger();
  const open = async () => (await import('@margay/session')).OperatorStore.open(processEnvironment(), logger);
  process.exitCode = await runOperatorCommand(command, { open, write: writeLine, logger });
}

const writeLine = (line: string): void => void process.stdout.write(`${line}\n`);

function commandLogger() {
  return createLogger({ service: 'operator', version: VERSION, write: (line) => process.stderr.write(line) });
}

function die(error: unknown): never {
  createLogger({ service: 'margay' }).error({ err: error }, 'margay ends because of an error');
  process.exit(isMargayError(error) && error.code === 'INVALID_ARGUMENT' ? 2 : 1);
}

process.on('uncaughtException', die);
process.on('unhandledRejection', die);
void main().catch(die);
