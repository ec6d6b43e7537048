import { Agent as HttpAgent, request as httpRequest, type IncomingMessage, type RequestOptions } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import { Readable } from 'node:stream';
import { ModelFailure } from '@margay/engine';

const AGENT_OPTIONS = { keepAlive: true, noDelay: true, scheduling: 'fifo' } as const;
const agents = { 'http:': new HttpAgent(AGENT_OPTIONS), 'https:': new HttpsAgent(AGENT_OPTIONS) };

/** Statuses that `Response` takes without a body only. */
const BODILESS = new Set([204, 205, 304]);
/** Whoever reads a stream of events keeps a line until it ends. */
const LINE_MAX_BYTES = 8 * 1024 * 1024;
const LINE_FEED = 10;

/**
 * `fetch` for the one thing model calls need: a text sent, a stream read, over kept connections. Node's own costs half a
 * model call's CPU more. It follows no redirects and asks for no compression.
 */
export const keepAliveFetch: typeof fetch = (input, init = {}) => {
  const { body } = init;
  if (body !== undefined && body !== null && typeof body !== 'string')
    return Promise.reject(new TypeError('keepAliveFetch sends text only'));
  const headers = Object.fromEntries(new Headers(init.headers));
  if (body) headers['content-length'] = String(Buffer.byteLength(body));
  const url = new URL(input instanceof Request ? input.url : input);
  const options: RequestOptions = {
    method: init.method ?? 'GET',
    headers,
    agent: url.protocol === 'https:' ? agents['https:'] : agents['http:'],
    ...(init.signal ? { signal: init.signal } : {}),
  };
  return send(url, options, body ?? '', true);
};

function send(url: URL, options: RequestOptions, body: string, mayRepeat: boolean): Promise<Response> {
  return new Promise((resolve, reject) => {
    const request = url.protocol === 'https:' ? httpsRequest : httpRequest;
    const outgoing = request(url, options, (incoming) => resolve(toResponse(incoming)));
    outgoing.on('error', (error) => {
      // A kept connection that the server closed at the moment it was used again.
      const isStale = outgoing.reusedSocket && mayRepeat && !options.signal?.aborted;
      if (isStale) resolve(send(url, options, body, false));
      else reject(error);
    });
    outgoing.end(body);
  });
}

function toResponse(incoming: IncomingMessage): Response {
  const status = incoming.statusCode ?? 500;
  const headers = new Headers();
  for (let at = 0; at + 1 < incoming.rawHeaders.length; at += 2)
    headers.append(incoming.rawHeaders[at] ?? '', incoming.rawHeaders[at + 1] ?? '');
  if (BODILESS.has(status)) {
    incoming.resume();
    return new Response(null, { status, headers });
  }
  const body = Readable.toWeb(incoming) as ReadableStream<Uint8Array>;
  endAtEndlessLine(incoming);
  return new Response(body, { status, headers });
}

/** A body of one endless line would fill the memory of its reader. */
function endAtEndlessLine(incoming: IncomingMessage): void {
  let lineBytes = 0;
  incoming.on('data', (chunk: Buffer) => {
    const lastFeed = chunk.lastIndexOf(LINE_FEED);
    lineBytes = lastFeed === -1 ? lineBytes + chunk.length : chunk.length - lastFeed - 1;
    if (lineBytes > LINE_MAX_BYTES)
      incoming.destroy(
        new ModelFailure('server', `the model provider sent a line of more than ${LINE_MAX_BYTES} bytes`),
      );
  });
}
