export { parseConfig } from './config/parse-config';
export {
  createLogger,
  LOG_LEVELS,
  setLogLevel,
  type Logger,
  type LoggerOptions,
  type LogLevel,
} from './logging/logger';
export { nestLogger } from './logging/nest-logger';
export { currentTraceparent, runWithTraceparent, withSpan } from './telemetry/spans';
export { mayAssert, systemPrincipal, type TokenKind } from './auth/entitlements';
export { generateKeys, Trust } from './auth/key-files';
export { KeyRing, type KeyRingOptions } from './auth/key-ring';
export { GrpcServer, type GrpcServerOptions, type ServeOptions } from './grpc/grpc-server';
export { grpcClient, type GrpcClientOptions } from './grpc/grpc-client';
export {
  audienceOf,
  type CallContext,
  type CallOptions,
  type GrpcClient,
  type GrpcHandlers,
  type ServiceDefinition,
} from './grpc/service-types';
