import { randomUUID } from 'node:crypto';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { InvalidArgumentError } from '@margay/errors';

interface Refusal {
  status: number;
  phrase: string;
  word: string;
  reason: string;
}

const NO_HTTP: Refusal = {
  status: 400,
  phrase: 'Bad Request',
  word: 'bad_request',
  reason: 'what came is not a valid HTTP request',
};
const REFUSALS: Record<string, Refusal> = {
  HPE_HEADER_OVERFLOW: {
    status: 431,
    phrase: 'Request Header Fields Too Large',
    word: 'too_large',
    reason: 'the path and headers are larger than 16 KB',
  },
  ERR_HTTP_REQUEST_TIMEOUT: {
    status: 408,
    phrase: 'Request Timeout',
    word: 'deadline_exceeded',
    reason: 'the request did not come in time',
  },
};

/** Answers what is no request that could be routed, in the shape of all errors; the connection ends with it. */
export function refuseBrokenRequest(error: NodeJS.ErrnoException, socket: Socket): void {
  const { _httpMessage: answering } = socket as { _httpMessage?: { headersSent: boolean } | null };
  // An answer under way must not get another one into it.
  const isGone = error.code === 'ECONNRESET' || !socket.writable || answering?.headersSent === true;
  if (!isGone) {
    const refusal = REFUSALS[error.code ?? ''] ?? NO_HTTP;
    const body = bodyOf(refusal);
    const headers = Object.entries({ ...headersOf(refusal, body), Connection: 'close' });
    const lines = headers.map(([name, value]) => `${name}: ${value}\r\n`).join('');
    socket.write(`HTTP/1.1 ${refusal.status} ${refusal.phrase}\r\n${lines}\r\n${body}`);
  }
  socket.destroySoon();
}

/** Node would answer an unknown `Expect` without a body. */
export function refuseExpectations(server: Server): void {
  server.on('checkExpectation', ({ headers }: IncomingMessage, response: ServerResponse) => {
    const reason = `Invalid header: 'Expect' asks for ${String(headers.expect).slice(0, 64)}, which is not done here`;
    const refusal = { status: 417, phrase: 'Expectation Failed', word: 'bad_request', reason };
    const body = bodyOf(refusal);
    response.writeHead(refusal.status, headersOf(refusal, body)).end(body);
  });
}

/** Bodies are taken as they are. */
export function requirePlainBody({ headers }: { headers: IncomingMessage['headers'] }): void {
  const encoding = headers['content-encoding'];
  if (encoding === undefined || encoding === 'identity') return;
  throw new InvalidArgumentError(
    'unsupported_media_type',
    "Invalid header: 'Content-Encoding': bodies are not decompressed; send plain JSON",
  );
}

function bodyOf({ status, reason }: Refusal): string {
  return JSON.stringify({ error: { code: status, reason, retryable: false } });
}

function headersOf({ word }: Refusal, body: string): Record<string, string> {
  return {
    'Content-Type': 'application/json; charset=utf-8',
    'Content-Length': String(Buffer.byteLength(body)),
    'X-Request-Id': randomUUID(),
    'X-Margay-Reason': word,
  };
}
