import { UnavailableError } from '@margay/errors';
import { NatsBus, parseConfig, type RunningService, type ServiceShared } from '@margay/platform';
import { systemResolve, type Resolve } from './address/resolver';
import { EgressAudit } from './audit/egress-audit';
import type { EgressRecord } from './audit/egress-record';
import { EgressConfig } from './config';
import { doorsOf } from './identity/open-doors';
import { CachedCredentials } from './inject/cached-credentials';
import type { Credentials } from './inject/credential';
import { Injector } from './inject/injector';
import { Authority } from './intercept/authority';
import { hostTrust } from './intercept/host-connection';
import { Interceptor } from './intercept/interceptor';
import { Limits } from './limits/limits';
import { EgressMetrics } from './metrics';
import { PolicyFile } from './policy/policy-file';
import type { TenantPolicies } from './policy/tenant-policies';
import { EgressProxy } from './proxy/egress-proxy';
import { Gate } from './proxy/gate';
import { openServices } from './services/open-services';
import { sessionSide } from './session-side';

const SERVICE = 'egress';
const SUMMARY_MS = 60_000;

/** What specs put in the place of the outside. */
export interface EgressParts {
  resolve?: Resolve;
  credentials?: Credentials;
}

/** Starts the proxy through which sandboxes reach the outside. */
export async function startEgress(
  environment: NodeJS.ProcessEnv,
  shared: ServiceShared,
  { resolve = systemResolve(), credentials }: EgressParts = {},
): Promise<RunningService> {
  const config = parseConfig(EgressConfig, environment);
  const logger = shared.logger.child({ service: SERVICE });
  const file = await PolicyFile.open(config.MARGAY_EGRESS_POLICY_FILE, logger);
  const bus = config.MARGAY_NATS_URL === undefined ? undefined : new NatsBus({ url: config.MARGAY_NATS_URL, name: SERVICE, logger }); // prettier-ignore
  const doors = await doorsOf(config, logger, { ...shared, bus });
  const session = await sessionSide(config, { file, logger, shared, bus });
  await bus?.start();
  const policies = session?.policies ?? file;
  const metrics = new EgressMetrics(shared.management.registry);
  const audit = new EgressAudit((line) => logger.info({ egress: line }, 'egress'));
  const record = (ended: EgressRecord): void => {
    metrics.ended(ended);
    audit.record(ended);
  };
  const onBytes = (direction: 'up' | 'down', bytes: number): void => metrics.passed(direction, bytes);
  const gate = new Gate({
    policies,
    identify: doors.identify,
    resolve,
    limits: new Limits(Date.now),
    now: Date.now,
    onEnd: (ended) => {
      record(ended);
      session?.record(ended);
    },
    onBytes,
  });
  const services = await openServices(config, { operator: file, shared, resolve, onEnd: record, onBytes });
  metrics.show(() => gate.openCount + (services?.openCount ?? 0));
  if (session) metrics.showAge(() => session.policies.ageMs);
  const injector = new Injector(credentials ? new CachedCredentials(credentials) : session?.credentials);
  const interceptor = await interceptorOf(config, { gate, injector });
  const proxy = new EgressProxy({ gate, interceptor, now: Date.now });
  await doors.open(proxy);
  file.watch(config.MARGAY_EGRESS_POLICY_LOOK_SECONDS * 1_000);
  const summaries = setInterval(() => audit.flush(), SUMMARY_MS);
  summaries.unref();
  const removeCheck = shared.management.registerCheck('egress.policy', 'ready', () => checkOf(policies));
  return {
    close: async () => {
      removeCheck();
      file.close();
      services?.stop();
      await doors.close();
      const graceMs = config.MARGAY_EGRESS_DRAIN_SECONDS * 1_000;
      await Promise.all([proxy.close(graceMs), services?.close(graceMs)]);
      await session?.close();
      await bus?.close();
      clearInterval(summaries);
      audit.flush();
    },
  };
}

/** Who has never heard what tenants have stored serves nobody; a former replica that knows it serves on meanwhile. */
function checkOf({ fault, isKnown }: PolicyFile | TenantPolicies): { degraded: string } | undefined {
  if (!isKnown)
    throw new UnavailableError('egress_unavailable', fault ?? 'The policies of tenants have not been asked for yet.');
  return fault === undefined ? undefined : { degraded: fault };
}

async function interceptorOf(
  config: EgressConfig,
  parts: { gate: Gate; injector: Injector },
): Promise<Interceptor | undefined> {
  const { MARGAY_EGRESS_CA_DIR: folder, MARGAY_EGRESS_TRUST: trust } = config;
  if (folder === undefined) return undefined;
  return new Interceptor({ ...parts, authority: await Authority.open(folder, Date.now), trust: hostTrust(trust) });
}
