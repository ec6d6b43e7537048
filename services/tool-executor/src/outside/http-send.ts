import { request as httpRequest, type IncomingMessage } from 'node:http';
import { request as httpsRequest } from 'node:https';
import type { AttemptEnd } from './outside-tool';

export interface HttpRequest {
  url: string;
  method: string;
  headers: Readonly<Record<string, string>>;
  body: string;
  /** Of the answer's body; the rest is not read. */
  maxBytes: number;
  signal: AbortSignal;
}

export interface HttpAnswer {
  status: number;
  contentType: string;
  bytes: Buffer;
  isCut: boolean;
}

type NoAnswer = Extract<AttemptEnd, { kind: 'not_sent' | 'lost' }>;

/**
 * One HTTP request on a connection of its own: only so it is known whether anything was sent (a kept one may be closed by
 * the server at the very moment), and nothing is repeated behind our back. Redirects are answers. Never rejects.
 */
export function send(request: HttpRequest): Promise<HttpAnswer | NoAnswer> {
  const { url, method, headers, body, signal, maxBytes } = request;
  const isSecure = url.startsWith('https:');
  let isSent = false;
  let isAnswered = false;
  return new Promise((resolve) => {
    // Codes name what went wrong without the address, which is the operator's business.
    const onError = (error: NodeJS.ErrnoException): void => {
      const code = error.code ?? 'unknown';
      if (isSent) resolve({ kind: 'lost', error: `the connection was lost before the answer was whole (${code})` });
      else resolve({ kind: 'not_sent', error: `the server could not be reached (${code})` });
    };
    const onResponse = (response: IncomingMessage): void => {
      isAnswered = true;
      read(response, maxBytes).then(resolve, onError);
    };
    try {
      const open = isSecure ? httpsRequest : httpRequest;
      const sizes = { 'content-length': String(Buffer.byteLength(body)), 'accept-encoding': 'identity' };
      const outgoing = open(url, { method, headers: { ...headers, ...sizes }, agent: false, signal });
      outgoing.once('socket', (socket) => {
        socket.once(isSecure ? 'secureConnect' : 'connect', () => (isSent = true));
      });
      outgoing.once('response', onResponse);
      outgoing.on('error', onError);
      // An answer that switches to another protocol closes the connection, and is neither of both.
      outgoing.once('close', () => isAnswered || onError({ name: 'Error', message: 'closed', code: 'ECONNRESET' }));
      outgoing.end(body);
    } catch (error) {
      onError(error as NodeJS.ErrnoException);
    }
  });
}

async function read(response: IncomingMessage, maxBytes: number): Promise<HttpAnswer> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of response as AsyncIterable<Buffer>) {
    chunks.push(chunk);
    size += chunk.length;
    if (size > maxBytes) break; // leaving the loop closes the connection
  }
  const bytes = Buffer.concat(chunks).subarray(0, maxBytes);
  const { statusCode = 0, headers } = response;
  return { status: statusCode, contentType: headers['content-type'] ?? '', bytes, isCut: size > maxBytes };
}
