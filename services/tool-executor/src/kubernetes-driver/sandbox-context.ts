import type { Logger } from '@margay/platform';
import type { PoolSettings } from './pool-settings';
import type { KubernetesApi } from './kubernetes-api';
import type { NetworkGate } from './network-gate';
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
  /** With several tenants: who may have sandboxes. */
  gate?: Pick<NetworkGate, 'admit'>;
}
