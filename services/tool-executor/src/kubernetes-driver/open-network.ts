import { getServers } from 'node:dns';
import { isIP } from 'node:net';
import { networkInterfaces } from 'node:os';
import { METADATA_SERVICES, type NetworkQuestions, type ServiceShared, type Sweep } from '@margay/platform';
import type { Db } from 'mongodb';
import type { ToolExecutorConfig } from '../config';
import { NetworkCheckRepository } from './network-check.repository';
import { NetworkGate } from './network-gate';
import { NetworkLook } from './network-look';
import { NetworkSweep } from './network-sweep';
import type { SandboxContext } from './sandbox-context';

export interface NetworkParts {
  config: ToolExecutorConfig;
  db: Db;
  management: ServiceShared['management'];
}

/** So soon after the start, or a failure, it is looked at. */
const TICK_MS = 5_000;
const WEEK_MS = 7 * 24 * 3_600_000;

/** With several tenants: finds out whether the network keeps them apart, and lets no second one in before. */
export function openNetwork(context: SandboxContext, { config, db, management }: NetworkParts) {
  const { api, settings, workspaces, logger } = context;
  const checks = new NetworkCheckRepository(db.collection('networkChecks'), db.collection('firstTenant'));
  const gate = new NetworkGate({ checks, oldestTenant: (except) => workspaces.oldestTenant(except) });
  const ending = new AbortController();
  const probe = new NetworkLook({ api, settings, questions: questionsFor(config), signal: ending.signal });
  const { namespaces } = settings;
  const look = probe.look.bind(probe);
  const sweep = new NetworkSweep({ checks, namespaces, look, everyMs: WEEK_MS, logger });
  const removeCheck = management.registerCheck('network', 'ready', async () => {
    // The store has a check of its own.
    const found = await Promise.all(namespaces.map((name) => checks.find(name).catch(() => undefined)));
    const bad = found.find((check) => check?.holds === false);
    return bad && { degraded: `network policies are not enforced in ${bad._id}: ${bad.detail}` };
  });
  const work: Sweep = { name: 'network-policy', everyMs: TICK_MS, sweep: () => sweep.sweep() };
  const close = (): void => {
    ending.abort();
    removeCheck();
  };
  return { gate, work, close };
}

/** What sandboxes must not reach, as far as this process knows it. */
function questionsFor(config: ToolExecutorConfig): NetworkQuestions {
  const { KUBERNETES_SERVICE_HOST: host, KUBERNETES_SERVICE_PORT: port, MARGAY_TOOL_EXECUTOR_LISTEN: listen } = config;
  const own = Object.values(networkInterfaces()).flatMap((each) => each ?? []);
  const address = own.find(({ internal, family }) => !internal && family === 'IPv4')?.address;
  const ownPort = /:(\d+)$/.exec(listen)?.[1];
  return {
    closed: {
      ...METADATA_SERVICES,
      ...(host === undefined ? {} : { 'the Kubernetes API': `${host}:${port}` }),
      ...(address === undefined || ownPort === undefined ? {} : { 'tool-executor': `${address}:${ownPort}` }),
    },
    nameServers: getServers().filter((server) => isIP(server) !== 0),
  };
}
