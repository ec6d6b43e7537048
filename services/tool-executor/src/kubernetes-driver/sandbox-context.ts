import type { Logger } from '@margay/platform';
import type { PoolSettings } from './pool-settings';
import type { KubernetesApi } from './kubernetes-api';
import type { PodCache } from './pod-cache';
import type { WaitingRepository } from './waiting.repository';
import type { SandboxRepository } from './sandbox.repository';
import type { WorkspaceRepository } from './workspace.repository';

/** What every part of the driver works on. */
export interface SandboxContext {
  api: KubernetesApi;
  pods: PodCache;
  sandboxes: SandboxRepository;
  workspaces: WorkspaceRepository;
  waiting: WaitingRepository;
  settings: PoolSettings;
  logger: Logger;
}
