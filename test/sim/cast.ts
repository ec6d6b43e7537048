import type { Clients } from './clients/clients';
import type { Runner } from './runner/runner';
import type { Executor } from './sandbox/executor';
import type { Replica } from './session/replica';
import type { Gateway } from './streams/gateway';
import type { Reader } from './streams/reader';

/** Everybody who takes part. */
export interface Cast {
  replicas: Replica[];
  runners: Runner[];
  executors: Executor[];
  gateways: Gateway[];
  readers: Reader[];
  clients: Clients;
}
