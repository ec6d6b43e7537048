import { connect, type Socket } from 'node:net';
import { DeadlineExceededError, isMargayError, UnavailableError } from '@margay/errors';
import type { AddressGuard } from './address-guard';
import { addressesOf, type Resolve } from './resolver';

export interface Dialer {
  guard: AddressGuard;
  resolve: Resolve;
  connectTimeoutMs: number;
}

const MAX_TRIES = 4;

/**
 * Connects to a host: resolves its name once, demands that every address is acceptable, and dials one that was checked,
 * so that a name that changes its mind gains nothing.
 */
export async function dial({ guard, resolve, connectTimeoutMs }: Dialer, host: string, port: number): Promise<Socket> {
  const addresses = await addressesOf(resolve, host, guard.isExcepted(host, port));
  if (!addresses.every((address) => guard.accepts(host, port, address)))
    throw new UnavailableError('egress_address', `The name ${host} stands for an address that is not public.`);
  let failure: unknown;
  for (const address of addresses.slice(0, MAX_TRIES)) {
    try {
      return await connectTo(address, port, connectTimeoutMs);
    } catch (error) {
      failure = error;
    }
  }
  if (isMargayError(failure)) throw failure;
  throw new UnavailableError('egress_connect', `${host} takes no connections at port ${port}.`, { cause: failure });
}

function connectTo(address: string, port: number, timeoutMs: number): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host: address, port, allowHalfOpen: true, noDelay: true });
    const late = (): void => {
      socket.destroy();
      reject(new DeadlineExceededError('egress_timeout', 'The host did not take the connection in time.'));
    };
    const timer = setTimeout(late, timeoutMs);
    socket.once('error', (error) => {
      clearTimeout(timer);
      reject(error);
    });
    socket.once('connect', () => {
      clearTimeout(timer);
      socket.removeAllListeners('error');
      resolve(socket);
    });
  });
}
