import { request as httpRequest, type IncomingMessage, type RequestOptions } from 'node:http';
import { request as httpsRequest } from 'node:https';
import type { Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { isMargayError } from '@margay/errors';
import { ATTRIBUTE, withSpan } from '@margay/platform';
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

/** Opens a connection to a host that others lead there; it fails before anything has been sent to the host. */
export type OpenTunnel = (url: URL, signal: AbortSignal) => Promise<Socket>;

/** The same through a tunnel, if there is one to open. */
export async function sendBy(open: OpenTunnel | undefined, request: HttpRequest): Promise<HttpAnswer | NoAnswer> {
  if (!open) return send(request);
  const url = new URL(request.url);
  const attributes = { [ATTRIBUTE.serverAddress]: url.hostname, [ATTRIBUTE.httpMethod]: request.method };
  return withSpan(
    'egress.request',
    attributes,
    async (span) => {
      const answer = await sendThrough(open, url, request);
      if ('status' in answer) span?.setAttribute(ATTRIBUTE.httpStatus, answer.status);
      else span?.setAttribute(ATTRIBUTE.errorType, answer.kind);
      return answer;
    },
    { kind: 'client' },
  );
}

async function sendThrough(open: OpenTunnel, url: URL, request: HttpRequest): Promise<HttpAnswer | NoAnswer> {
  let tunnel: Socket;
  try {
    tunnel = await open(url, request.signal);
  } catch (error) {
    const reason = isMargayError(error) ? error.reason : 'unknown';
    return { kind: 'not_sent', error: `the server could not be reached (${reason})` };
  }
  return send(request, tunnel);
}

/**
 * One HTTP request on a connection of its own: only so it is known whether anything was sent (a kept one may be closed by
 * the server at the very moment), and nothing is repeated behind our back. Redirects are answers. Never rejects.
 */
export function send(request: HttpRequest, tunnel?: Socket): Promise<HttpAnswer | NoAnswer> {
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
      const options = { method, headers: { ...headers, ...sizes }, signal, ...connectionOf(url, tunnel) };
      const outgoing = open(url, options);
      outgoing.once('socket', (socket) => {
        if (isSecure) socket.once('secureConnect', () => (isSent = true));
        else if (tunnel) isSent = true;
        else socket.once('connect', () => (isSent = true));
      });
      outgoing.once('close', () => tunnel?.destroy());
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

function connectionOf(address: string, tunnel: Socket | undefined): RequestOptions {
  if (!tunnel) return { agent: false };
  const { protocol, hostname } = new URL(address);
  // Only agents know it, and a port that is the usual one does not stand in `Host`.
  const defaultPort = protocol === 'https:' ? 443 : 80;
  return {
    defaultPort,
    createConnection: () => (protocol === 'https:' ? connectTls({ socket: tunnel, servername: hostname }) : tunnel),
  };
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
