import { InvalidArgumentError } from '@margay/errors';
import { storeGenerationOf, type KeyRing, type Logger } from '@margay/platform';
import { BUILTIN_TOOLS } from '@margay/toolbox';
import type { ToolExecutorConfig } from '../config';
import type { ServiceStore } from '../store/service-store';
import { egressTunnels } from './egress-tunnels';
import { HttpTool } from './http-tool';
import { readHttpTools } from './http-tool-file';
import { MongoGuardStore } from './mongo-guard-store';
import { OutsideCalls } from './outside-calls';

/** The tools outside sandboxes with their guard; undefined where the operator has defined none. */
export async function openOutside(
  config: ToolExecutorConfig,
  store: Pick<ServiceStore, 'find'>,
  { logger, keys }: { logger: Logger; keys: KeyRing },
): Promise<OutsideCalls | undefined> {
  const { MARGAY_HTTP_TOOLS_FILE: file, MARGAY_MONGODB_DATABASE: database } = config;
  const { MARGAY_EGRESS_SERVICES_ADDRESS: proxy } = config;
  if (file === undefined) return undefined;
  const names = new Set(BUILTIN_TOOLS.map(({ tool_id: id }) => id));
  const tunnelFor = proxy === undefined ? undefined : egressTunnels(proxy, keys);
  const tools = readHttpTools(file, names).map((settings) => new HttpTool(settings, tunnelFor));
  const db = await store.find();
  if (!db) throw missing();
  const guard = new MongoGuardStore(db.collection('toolCalls'), db.collection('outsideEpochs'));
  await guard.createIndexes();
  const generation = storeGenerationOf(database);
  const lostMs = config.MARGAY_CALL_LOST_SECONDS * 1_000;
  const calls = new OutsideCalls({ store: guard, tools, logger, generation, lostMs });
  logger.info({ tools: tools.length }, 'tools outside sandboxes are ready');
  return calls;
}

function missing(): Error {
  return new InvalidArgumentError(
    'bad_environment',
    'Cannot start: MARGAY_HTTP_TOOLS_FILE needs MARGAY_MONGODB_URL too, where calls are recorded before they are made.',
  );
}
