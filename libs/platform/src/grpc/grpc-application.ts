import { FailedPreconditionError } from '@margay/errors';
import type { INestApplicationContext, Type } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { KeyRing } from '../auth/key-ring';
import { nestLogger } from '../logging/nest-logger';
import type { RunningService, ServiceShared } from '../service';
import { GrpcServer } from './grpc-server';

export interface GrpcApplicationOptions {
  service: string;
  /** The application's module; its classes handle the calls. */
  module: Type;
  /** `host:port` of its gRPC server. */
  listen: string;
  keysDirectory: string;
  shared: ServiceShared;
  /** Adds the handlers, found in the application. */
  serve: (server: GrpcServer, application: INestApplicationContext) => void;
}

/** Runs a Nest application whose only door is a gRPC server, with a readiness check; closing goes from the door inwards. */
export async function startGrpcApplication(options: GrpcApplicationOptions): Promise<RunningService> {
  const { service, module, listen, keysDirectory, shared, serve } = options;
  const { management } = shared;
  const logger = shared.logger.child({ service });
  const keys = await KeyRing.load(keysDirectory, service, shared);
  const application = await NestFactory.createApplicationContext(module, {
    logger: nestLogger(logger),
    abortOnError: false,
  });
  const server = new GrpcServer({ listen, keys, logger, registry: management.registry, ...shared.connectionAge });
  try {
    serve(server, application);
    await server.start();
  } catch (error) {
    await application.close();
    throw error;
  }
  const removeCheck = management.registerCheck(`${service}-grpc`, 'ready', () => {
    if (!server.isServing) throw new FailedPreconditionError('not_serving', `${service} does not serve gRPC.`);
  });
  return {
    close: async () => {
      await server.close();
      removeCheck();
      await application.close();
    },
  };
}
