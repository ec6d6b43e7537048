import type { ServerResponse } from 'node:http';
import { isMargayError, UnavailableError, type MargayError } from '@margay/errors';
import type { Exchange } from './exchange';
import type { Gate } from './gate';
import { isRefusal, refusalOf } from './refusal';

/** Serves one request; what fails is told to the client, unless its answer has begun, and to the record. */
export async function answer(
  gate: Gate,
  exchange: Exchange,
  response: ServerResponse,
  serve: () => Promise<void>,
): Promise<void> {
  let failure: unknown;
  try {
    await serve();
  } catch (error) {
    failure = refuseRequest(exchange, response, causeOf(exchange, error));
  } finally {
    gate.end(exchange, failure);
  }
}

function refuseRequest(exchange: Exchange, response: ServerResponse, error: unknown): unknown {
  if (response.headersSent || response.destroyed) {
    response.destroy();
    return error;
  }
  const told = toldTo(error);
  const { status, headers, body } = refusalOf(told);
  exchange.status = status;
  response.writeHead(status, headers).end(body);
  return told;
}

/** Whoever cut it off knows better than the parts that broke by that. */
export function causeOf({ signal }: Exchange, error: unknown): unknown {
  return signal.aborted ? (signal.reason as unknown) : error;
}

/** What the client is told. */
export function toldTo(error: unknown): MargayError {
  if (isMargayError(error) && isRefusal(error)) return error;
  return new UnavailableError('egress_connect', 'The host broke off the connection.', { cause: error });
}
