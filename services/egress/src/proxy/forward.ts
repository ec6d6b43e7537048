import { request as httpRequest, type IncomingMessage, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { pipeline } from 'node:stream/promises';
import { exceeded } from '../limits/limits';
import type { Exchange } from './exchange';
import { requestHeaders, responseHeaders } from './headers';
import { Meter } from './meter';
import type { ForwardTarget } from './target';

/** Sends one request to the host and its answer back. Both are framed anew, so neither side can smuggle a second one. */
export async function forward(
  exchange: Exchange,
  target: ForwardTarget,
  [request, response]: [IncomingMessage, ServerResponse],
  socket: Socket,
): Promise<void> {
  const { signal } = exchange;
  const outgoing = httpRequest({
    createConnection: () => socket,
    method: target.request.method,
    path: target.resource,
    headers: requestHeaders(request.rawHeaders, target.hostHeader),
    setHost: false,
  });
  outgoing.on('error', () => undefined); // also after it was answered
  const answered = new Promise<IncomingMessage>((resolve, reject) => {
    outgoing.once('response', resolve).once('error', reject);
    signal.addEventListener('abort', () => reject(signal.reason as Error), { once: true });
    response.once('close', () => reject(new Error('the client left')));
  });
  // A host may answer before it has read everything; what breaks here is told by `answered`, too.
  pipeline(request, new Meter(exchange.countUp), outgoing, { signal }).catch(() => undefined);
  try {
    const answer = await answered;
    refuseTooLong(exchange, answer);
    exchange.status = answer.statusCode ?? 0;
    response.sendDate = false;
    response.writeHead(exchange.status, answer.statusMessage ?? '', responseHeaders(answer.rawHeaders));
    await pipeline(answer, new Meter(exchange.countDown), response, { signal });
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
