import { isMargayError, type ErrorCode, type MargayError } from '@margay/client';
import { jsonLine, oneLine } from './render/sanitize';
import type { Style } from './render/style';
import type { Terminal } from './terminal';

export const EXIT = {
  completed: 0,
  failed: 1,
  usage: 2,
  denied: 3,
  notFound: 4,
  conflict: 5,
  unreachable: 6,
  limit: 7,
  waiting: 8,
  timeLimit: 124,
  interrupted: 130,
} as const;

const EXIT_BY_CODE: Record<ErrorCode, number> = {
  INVALID_ARGUMENT: EXIT.usage,
  UNAUTHENTICATED: EXIT.denied,
  PERMISSION_DENIED: EXIT.denied,
  NOT_FOUND: EXIT.notFound,
  ALREADY_EXISTS: EXIT.conflict,
  ABORTED: EXIT.conflict,
  FAILED_PRECONDITION: EXIT.conflict,
  RESOURCE_EXHAUSTED: EXIT.limit,
  CANCELLED: EXIT.interrupted,
  INTERNAL: EXIT.failed,
  UNIMPLEMENTED: EXIT.failed,
  UNAVAILABLE: EXIT.unreachable,
  DEADLINE_EXCEEDED: EXIT.unreachable,
};

export const exitCodeOf = (error: unknown): number => {
  if (!isMargayError(error)) return EXIT.failed;
  return error.reason === 'budget_exhausted' ? EXIT.limit : EXIT_BY_CODE[error.code];
};

interface Words {
  message: string;
  hint: string;
}

/** What the person reads instead of the server's sentence, by reason. */
const WORDS: Record<string, (error: MargayError, sessionId: string) => Partial<Words>> = {
  network: () => ({ hint: 'npm start, or give another address with --url' }),
  unauthenticated: () => ({
    message: 'the key was refused: the server does not know it, or it was revoked',
    hint: 'set MARGAY_API_KEY, or choose another profile with --profile',
  }),
  permission_denied: () => ({ hint: 'ask an administrator of the tenant for the permission' }),
  session_running: (_error, id) => ({
    message: `session ${id} is running: it takes one run at a time`,
    hint: `margay send ${id} TEXT, margay tail ${id} or margay stop ${id}`,
  }),
  session_terminated: (_error, id) => ({
    message: `session ${id} is terminated: it takes nothing more`,
    hint: 'margay run TEXT starts a new session',
  }),
  session_not_found: () => ({ hint: 'margay sessions lists what there is' }),
  cwd_forbidden: () => ({ hint: 'a project of the server (margay projects), or a server that allows folders' }),
  rate_limited: ({ retryAfterMs }) => ({
    hint: retryAfterMs ? `again in ${Math.ceil(retryAfterMs / 1000)} s` : 'again in a moment',
  }),
  timeout: () => ({ hint: 'a longer --timeout, or margay status' }),
};

const HINT_BY_EXIT: Record<number, string> = {
  [EXIT.failed]: 'the same with --verbose, and margay status',
  [EXIT.usage]: 'margay help',
  [EXIT.denied]: 'another key or profile',
  [EXIT.notFound]: 'margay sessions, margay projects',
  [EXIT.conflict]: 'margay sessions',
  [EXIT.unreachable]: 'margay status, then again',
  [EXIT.limit]: 'again later',
};

function wordsOf(error: MargayError): Words {
  const sessionId = /^\/api\/sessions\/([^/]+)\//.exec(error.http?.path ?? '')?.[1] ?? 'ID';
  const own = WORDS[error.reason]?.(error, sessionId) ?? {};
  const given = error.details?.hint;
  const hint = typeof given === 'string' ? given : own.hint;
  return {
    message: own.message ?? error.message,
    hint: hint ?? HINT_BY_EXIT[exitCodeOf(error)] ?? 'the same with --verbose',
  };
}

export interface ReportOptions {
  json: boolean;
  verbose: boolean;
  style: Style;
}

/** Writes one failure to standard error and answers the exit code it means. */
export function reportFailure(error: unknown, terminal: Terminal, { json, verbose, style }: ReportOptions): number {
  const write = (line: string): void => terminal.stderr.write(`${line}\n`);
  if (!isMargayError(error)) {
    const message = error instanceof Error ? error.message : String(error);
    if (json) write(jsonLine({ error: { code: 'INTERNAL', reason: 'internal', message } }));
    else write(`${style.red('error:')} ${oneLine(message)}\ntry: the same with --verbose`);
  } else if (json) {
    const { code, reason, message, http } = error;
    write(jsonLine({ error: { code, reason, message, request_id: http?.requestId ?? null } }));
  } else {
    const { message, hint } = wordsOf(error);
    const facts = [error.reason, error.http?.requestId].filter((fact) => fact !== undefined);
    write(`${style.red('error:')} ${oneLine(message)}`);
    write(`try: ${hint}`);
    write(style.dim(oneLine(facts.join(' · '))));
  }
  if (verbose && error instanceof Error) write(style.dim(error.stack ?? error.message));
  return exitCodeOf(error);
}
