import type { Clients } from './clients';
import type { Gateway } from './gateway';
import type { Reader } from './reader';
import type { Replica } from './replica';
import type { Runner } from './runner';

/** Everybody who takes part. */
export interface Cast {
  replicas: Replica[];
  runners: Runner[];
  gateways: Gateway[];
  readers: Reader[];
  clients: Clients;
}
