import { KeyRing, type Logger } from '@margay/platform';
import { Module, type Type } from '@nestjs/common';
import { EgressCallers } from './egress/egress-callers';
import { ExecutorGrpc } from './executor/executor.grpc';
import { ExecutorService } from './executor/executor.service';
import { FilesService } from './files/files.service';
import type { WorkspaceIndex } from './files/workspace-index';
import { WorktreesService, type WorktreesParts } from './files/worktrees.service';
import type { OutsideCalls } from './outside/outside-calls';
import { MaskedCalls } from './redaction/masked-calls';
import { SandboxRegistry } from './sandbox/sandbox-registry';
import { UtilitySandboxes } from './utility/utility-sandboxes';

/** What is open already. */
export interface AppParts {
  registry: SandboxRegistry;
  keys: KeyRing;
  logger: Logger;
  outside?: OutsideCalls | undefined;
  callers?: EgressCallers | undefined;
  masked?: MaskedCalls | undefined;
  index: WorkspaceIndex;
  forgetPart?: WorktreesParts['forgetPart'];
}

/** Wiring around a registry that is open already: what it found decides whether the service may start at all. */
export function appModuleOf({ registry, keys, logger, outside, callers, masked, index, forgetPart }: AppParts): Type {
  const utility = new UtilitySandboxes(registry);
  @Module({
    providers: [
      ExecutorGrpc,
      { provide: SandboxRegistry, useValue: registry },
      { provide: UtilitySandboxes, useValue: utility },
      { provide: KeyRing, useValue: keys },
      ...(callers ? [{ provide: EgressCallers, useValue: callers }] : []),
      ...(masked ? [{ provide: MaskedCalls, useValue: masked }] : []),
      { provide: FilesService, useFactory: () => new FilesService({ registry, utility, index }) },
      { provide: WorktreesService, useFactory: () => new WorktreesService({ utility, index, logger, forgetPart }) },
      {
        provide: ExecutorService,
        useFactory: () =>
          new ExecutorService(registry, outside, (error) =>
            logger.warn({ err: error }, 'a workspace is archived later'),
          ),
      },
    ],
  })
  class AppModule {}
  return AppModule;
}
