import { isMargayError } from '@margay/errors';

const MAX_CAUSES = 4;

export interface SerializedError {
  type: string;
  message: string;
  code?: string;
  reason?: string;
  stack?: string;
  cause?: SerializedError;
}

/** How an error looks in a log line: expected ones by code and reason, the unexpected with their stack. No `details`. */
export function serializeError(error: unknown, depth = 0): SerializedError {
  if (!(error instanceof Error)) return { type: typeof error, message: 'a value that is no error was thrown' };
  const line: SerializedError = { type: error.name, message: error.message };
  const isExpected = isMargayError(error) && error.code !== 'INTERNAL';
  if (isMargayError(error)) Object.assign(line, { code: error.code, reason: error.reason });
  else if ('code' in error && error.code !== undefined) line.code = String(error.code);
  if (!isExpected && error.stack) line.stack = error.stack;
  if (error.cause instanceof Error && depth < MAX_CAUSES) line.cause = serializeError(error.cause, depth + 1);
  return line;
}
