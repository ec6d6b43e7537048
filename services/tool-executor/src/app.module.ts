import { KeyRing, type Logger } from '@margay/platform';
import { Module, type Type } from '@nestjs/common';
import { EgressCallers } from './egress/egress-callers';
import { ExecutorGrpc } from './executor/executor.grpc';
import { ExecutorService } from './executor/executor.service';
import { FilesService } from './files/files.service';
import type { OutsideCalls } from './outside/outside-calls';
import { SandboxRegistry } from './sandbox/sandbox-registry';
import { UtilitySandboxes } from './utility/utility-sandboxes';

/** Wiring around a registry that is open already: what it found decides whether the service may start at all. */
export interface AppParts {
  registry: SandboxRegistry;
  keys: KeyRing;
  logger: Logger;
  outside?: OutsideCalls | undefined;
  callers?: EgressCallers | undefined;
}

/** Wiring around a registry that is open already: what it found decides whether the service may start at all. */
export function appModuleOf({ registry, keys, logger, outside, callers }: AppParts): Type {
  @Module({
    providers: [
      ExecutorGrpc,
      { provide: SandboxRegistry, useValue: registry },
      { provide: UtilitySandboxes, useFactory: () => new UtilitySandboxes(registry) },
      { provide: KeyRing, useValue: keys },
      ...(callers ? [{ provide: EgressCallers, useValue: callers }] : []),
      { provide: FilesService, useFactory: () => new FilesService(registry, logger) },
      { provide: ExecutorService, useFactory: () => new ExecutorService(registry, outside) },
    ],
  })
  class AppModule {}
  return AppModule;
}
