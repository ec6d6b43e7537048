import type { ChannelOptions, ServiceDefinition as GrpcServiceDefinition } from '@grpc/grpc-js';
import type { MethodDefinition, ServiceDefinition } from './service-types';

const MAX_MESSAGE_BYTES = 8 * 1024 * 1024;
const KEEPALIVE = { 'grpc.keepalive_time_ms': 20_000, 'grpc.keepalive_timeout_ms': 10_000 };

export interface ConnectionAge {
  /** A connection gets GOAWAY at this age, so clients spread over new replicas. Default 5 min. */
  maxAgeMs?: number;
  /** Streams still open this long after GOAWAY are cut; they resume elsewhere. Default 30 s. */
  maxAgeGraceMs?: number;
}

export const serverOptions = ({ maxAgeMs = 300_000, maxAgeGraceMs = 30_000 }: ConnectionAge): ChannelOptions => ({
  ...KEEPALIVE,
  'grpc.max_receive_message_length': MAX_MESSAGE_BYTES,
  'grpc.max_send_message_length': MAX_MESSAGE_BYTES,
  'grpc.max_connection_age_ms': maxAgeMs,
  'grpc.max_connection_age_grace_ms': maxAgeGraceMs,
});

export const clientOptions: ChannelOptions = {
  ...KEEPALIVE,
  'grpc.max_receive_message_length': MAX_MESSAGE_BYTES,
  'grpc.max_send_message_length': MAX_MESSAGE_BYTES,
  'grpc.initial_reconnect_backoff_ms': 100,
  'grpc.min_reconnect_backoff_ms': 100,
  'grpc.max_reconnect_backoff_ms': 2_000,
  // All replicas behind a name may be replaced within seconds: they are looked up anew that often, instead of each 30 s.
  'grpc.dns_min_time_between_resolutions_ms': 1_000,
  // … and nobody is asked for a configuration in TXT records.
  'grpc.service_config_disable_resolution': 1,
  // A name with several addresses is a headless Service: use all replicas.
  'grpc.service_config': JSON.stringify({ loadBalancingConfig: [{ round_robin: {} }] }),
};

export const pathOf = (definition: ServiceDefinition, method: MethodDefinition) =>
  `/${definition.fullName}/${method.name}`;

export const codecOf = (method: MethodDefinition) => ({
  requestSerialize: (message: unknown) => Buffer.from(method.requestType.encode(message).finish()),
  requestDeserialize: (bytes: Buffer) => method.requestType.decode(bytes),
  responseSerialize: (message: unknown) => Buffer.from(method.responseType.encode(message).finish()),
  responseDeserialize: (bytes: Buffer) => method.responseType.decode(bytes),
});

/** A generated definition in the form grpc-js takes: no `.proto` files and no reflection at run time. */
export function toGrpc(definition: ServiceDefinition): GrpcServiceDefinition {
  return Object.fromEntries(
    Object.entries(definition.methods).map(([key, method]) => [
      key,
      {
        path: pathOf(definition, method),
        requestStream: method.requestStream,
        responseStream: method.responseStream,
        ...codecOf(method),
      },
    ]),
  );
}
