import pino from 'pino';
import { currentTraceIds } from '../telemetry/spans';
import { serializeError } from './error-serializer';
import { hideValues } from './hidden-values';
import { scrubFields, scrubText } from './redaction';

export type Logger = pino.Logger;
export const LOG_LEVELS = ['off', 'error', 'warn', 'info', 'debug'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

export interface LoggerOptions {
  /** Left out by a process that hosts several services, which bind it by child loggers. */
  service?: string;
  level?: LogLevel;
  /** Random per process start. */
  instance?: string;
  version?: string;
  /** Where finished lines go; standard output by default. */
  write?: (line: string) => void;
}

/** JSON lines: a constant sentence plus fields. Bind ids with `logger.child({ tenantId, sessionId })`; pass errors as `err`. */
export function createLogger(options: LoggerOptions): Logger {
  const write = options.write ?? standardOutput();
  return pino(
    {
      level: pinoLevel(options.level ?? 'info'),
      base: {
        ...(options.service && { service: options.service }),
        instance: options.instance,
        version: options.version,
      },
      timestamp: pino.stdTimeFunctions.isoTime,
      serializers: { err: (error: unknown) => serializeError(error), error: (error: unknown) => serializeError(error) },
      formatters: { level: (label) => ({ level: label }), log: (fields) => scrubFields(fields) },
      mixin: currentTraceIds,
    },
    { write: (line: string) => write(hideValues(scrubText(line))) },
  );
}

/** Changes the level of a running logger, e.g. when the configuration does. */
export function setLogLevel(logger: Logger, level: LogLevel): void {
  logger.level = pinoLevel(level);
}

const pinoLevel = (level: LogLevel) => (level === 'off' ? 'silent' : level);

function standardOutput(): (line: string) => void {
  const stream = pino.destination({ fd: 1, sync: true });
  return (line) => void stream.write(line);
}
