import { request as httpRequest, type IncomingMessage, type ServerResponse } from 'node:http';
import type { Duplex, Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { exceeded } from '../limits/limits';
import type { Exchange } from './exchange';
import { requestHeaders, responseHeaders } from './headers';
import { Meter } from './meter';
import type { ForwardTarget } from './target';

/** What is done to a request and to its answer on their way. */
export interface Passage {
  resource(resource: string): string;
  requestHeaders(headers: readonly string[]): string[];
  /** Throws for an answer that must not be passed on. */
  checkHead(answer: IncomingMessage): void;
  responseHeaders(headers: readonly string[]): string[];
  bodyStages(answer: IncomingMessage): Transform[];
}

const UNCHANGED: Passage = {
  resource: (resource) => resource,
  requestHeaders: (headers) => [...headers],
  checkHead: () => undefined,
  responseHeaders: (headers) => [...headers],
  bodyStages: () => [],
};

/** Sends one request to the host and its answer back. Both are framed anew, so neither side can smuggle a second one. */
export async function forward(
  exchange: Exchange,
  target: ForwardTarget,
  [request, response]: [IncomingMessage, ServerResponse],
  socket: Duplex,
  passage: Passage = UNCHANGED,
): Promise<void> {
  const { signal } = exchange;
  const outgoing = httpRequest({
    createConnection: () => socket,
    method: target.request.method,
    path: passage.resource(target.resource),
    headers: passage.requestHeaders(requestHeaders(request.rawHeaders, target.hostHeader)),
    setHost: false,
  });
  outgoing.on('error', () => undefined); // also after it was answered
  const answered = new Promise<IncomingMessage>((resolve, reject) => {
    outgoing.once('response', resolve).once('error', reject);
    // Without either where the host changes to another protocol.
    outgoing.once('close', () => reject(new Error('the host gave no answer')));
    signal.addEventListener('abort', () => reject(signal.reason as Error), { once: true });
    response.once('close', () => reject(new Error('the client left')));
  });
  // A host may answer before it has read everything; what breaks here is told by `answered`, too.
  pipeline(request, new Meter(exchange.countUp), outgoing, { signal }).catch(() => undefined);
  try {
    // What was cut while the connection was made tells nobody any more.
    signal.throwIfAborted();
    const answer = await answered;
    refuseTooLong(exchange, answer);
    passage.checkHead(answer);
    const stages = passage.bodyStages(answer);
    exchange.status = answer.statusCode ?? 0;
    response.sendDate = false;
    const headers = passage.responseHeaders(responseHeaders(answer.rawHeaders));
    response.writeHead(exchange.status, answer.statusMessage ?? '', headers);
    await pipeline([answer, ...stages, new Meter(exchange.countDown), response], { signal });
  } finally {
    answered.catch(() => undefined); // told by what was thrown
    outgoing.destroy();
    socket.destroy();
  }
}

function refuseTooLong({ limits }: Exchange, { headers }: IncomingMessage): void {
  const most = limits?.responseBytes ?? 0;
  if (Number(headers['content-length'] ?? 0) > most) throw exceeded(`more than ${most} bytes in one answer`);
}
