import type { StartService } from '@margay/platform';
import type { ServiceName } from './service-names';

export type LoadService = () => Promise<StartService>;

/** Loaded when asked for: a runner's process needs neither the store's driver nor the web server. */
export const STARTERS: Record<ServiceName, LoadService> = {
  session: async () => (await import('@margay/session')).startSession,
  egress: async () => (await import('@margay/egress')).startEgress,
  'tool-executor': async () => (await import('@margay/tool-executor')).startToolExecutor,
  'mcp-pool': async () => (await import('@margay/mcp-pool')).startMcpPool,
  'ide-manager': async () => (await import('@margay/ide-manager')).startIdeManager,
  channel: async () => (await import('@margay/channel')).startChannel,
  'agent-runner': async () => (await import('@margay/agent-runner')).startAgentRunner,
  gateway: async () => (await import('@margay/gateway')).startGateway,
};
