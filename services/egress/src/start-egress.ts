import { parseConfig, type RunningService, type ServiceShared } from '@margay/platform';
import { systemResolve, type Resolve } from './address/resolver';
import { EgressAudit } from './audit/egress-audit';
import { EgressConfig } from './config';
import { doorsOf } from './identity/open-doors';
import { Limits } from './limits/limits';
import { EgressMetrics } from './metrics';
import { PolicyFile } from './policy/policy-file';
import { EgressProxy } from './proxy/egress-proxy';

const SERVICE = 'egress';
const SUMMARY_MS = 60_000;

/** Starts the proxy through which sandboxes reach the outside. */
export async function startEgress(
  environment: NodeJS.ProcessEnv,
  shared: ServiceShared,
  resolve: Resolve = systemResolve(),
): Promise<RunningService> {
  const config = parseConfig(EgressConfig, environment);
  const logger = shared.logger.child({ service: SERVICE });
  const policies = await PolicyFile.open(config.MARGAY_EGRESS_POLICY_FILE, logger);
  const doors = await doorsOf(config, logger);
  const metrics = new EgressMetrics(shared.management.registry);
  const audit = new EgressAudit((line) => logger.info({ egress: line }, 'egress'));
  const proxy = new EgressProxy({
    policies,
    identify: doors.identify,
    resolve,
    limits: new Limits(Date.now),
    logger,
    now: Date.now,
    onEnd: (record) => {
      metrics.ended(record);
      audit.record(record);
    },
    onBytes: (direction, bytes) => metrics.passed(direction, bytes),
  });
  metrics.show(() => proxy.openCount);
  await doors.open(proxy);
  policies.watch(config.MARGAY_EGRESS_POLICY_LOOK_SECONDS * 1_000);
  const summaries = setInterval(() => audit.flush(), SUMMARY_MS);
  summaries.unref();
  const removeCheck = shared.management.registerCheck('egress.policy', 'ready', () =>
    policies.fault === undefined ? undefined : { degraded: policies.fault },
  );
  return {
    close: async () => {
      removeCheck();
      policies.close();
      await doors.close();
      await proxy.close(config.MARGAY_EGRESS_DRAIN_SECONDS * 1_000);
      clearInterval(summaries);
      audit.flush();
    },
  };
}
