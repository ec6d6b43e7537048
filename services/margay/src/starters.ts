import { startChannel } from '@margay/channel';
import { startIdeManager } from '@margay/ide-manager';
import { startMcpPool } from '@margay/mcp-pool';
import type { StartService } from '@margay/platform';
import { startSession } from '@margay/session';
import type { ServiceName } from './service-names';

export const STARTERS: Partial<Record<ServiceName, StartService>> = {
  session: startSession,
  'mcp-pool': startMcpPool,
  'ide-manager': startIdeManager,
  channel: startChannel,
};
