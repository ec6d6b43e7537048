import type { ServerResponse } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Answer } from './answer';
import { ApiError } from './api-error';
import { completionBody, streamFrames, type AnswerIdentity } from './wire';

/** How one accepted request is to be answered. */
export interface Exchange {
  n: number;
  model: string;
  stream: boolean;
  includeUsage: boolean;
  /** Aborts when the client goes away or the server closes. */
  signal: AbortSignal;
  /** Told right before the server itself destroys the socket. */
  onCut: () => void;
}

/** Plays an answer out on the response; returns early, without a word, once the client is gone. */
export async function play(answer: Answer, exchange: Exchange, response: ServerResponse): Promise<void> {
  const { signal } = exchange;
  if (answer.hang === true) return untilAborted(signal);
  if (!(await pause(answer.delayMs, signal))) return;
  for (const [name, value] of Object.entries(answer.headers ?? {})) response.setHeader(name, value);
  if (answer.status !== undefined && answer.status >= 400) return sendError(response, errorOf(answer, answer.status));
  const identity: AnswerIdentity = {
    id: `chatcmpl-${exchange.n}`,
    created: Math.floor(Date.now() / 1000),
    model: exchange.model,
  };
  if (exchange.stream)
    return playFrames(streamFrames(identity, answer, exchange.n, exchange.includeUsage), answer, exchange, response);
  sendJson(response, answer.status ?? 200, completionBody(identity, answer, exchange.n));
}

async function playFrames(
  frames: string[],
  answer: Answer,
  exchange: Exchange,
  response: ServerResponse,
): Promise<void> {
  const { signal } = exchange;
  response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8', 'cache-control': 'no-cache' });
  response.flushHeaders();
  for (const [index, frame] of frames.entries()) {
    if (index === answer.hangAfterChunks) return untilAborted(signal);
    if (index === answer.cutAfterChunks) return cut(exchange, response);
    if (index > 0 && !(await pause(answer.deltaDelayMs, signal))) return;
    if (signal.aborted) return;
    await written(response, frame, signal);
  }
  response.end();
}

/** What was written still reaches the client: the socket is destroyed only once the kernel has taken it. */
function cut(exchange: Exchange, response: ServerResponse): void {
  exchange.onCut();
  response.write('', () => response.socket?.destroy());
}

/** Resolves once the frame is handed to the kernel, or will never be. */
const written = (response: ServerResponse, frame: string, signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    const finish = (): void => {
      signal.removeEventListener('abort', finish);
      resolve();
    };
    signal.addEventListener('abort', finish);
    response.write(frame, finish);
  });

async function pause(milliseconds: number | undefined, signal: AbortSignal): Promise<boolean> {
  if (milliseconds === undefined || milliseconds <= 0) return !signal.aborted;
  return sleep(milliseconds, true, { signal }).catch((error: unknown) => {
    if (signal.aborted) return false;
    throw error;
  });
}

const untilAborted = (signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    if (signal.aborted) resolve();
    signal.addEventListener('abort', () => resolve(), { once: true });
  });

const TYPES: Readonly<Record<number, string>> = {
  401: 'invalid_request_error',
  404: 'invalid_request_error',
  429: 'requests',
};

function errorOf(answer: Answer, status: number): ApiError {
  const given = typeof answer.error === 'string' ? { message: answer.error } : answer.error;
  const fallback = status >= 500 ? 'server_error' : 'invalid_request_error';
  return new ApiError(
    status,
    given?.message ?? `The scripted model answers ${status}.`,
    given?.param ?? null,
    given?.code ?? (status === 429 ? 'rate_limit_exceeded' : null),
    given?.type ?? TYPES[status] ?? fallback,
  );
}

/** Sends an error body, unless the answer has begun already. */
export function sendError(response: ServerResponse, error: ApiError): void {
  if (response.headersSent) response.destroy();
  else sendJson(response, error.status, error.body());
}

export function sendJson(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}
