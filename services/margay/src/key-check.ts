import { KeyRing, parseConfig, type ManagementServer } from '@margay/platform';
import { GateConfig } from './config';
import type { ServiceName } from './service-names';

export interface KeyCheckOptions {
  services: readonly ServiceName[];
  environment: NodeJS.ProcessEnv;
  management: ManagementServer;
}

/** Says in `/readyz` that keys which are being replaced cannot be used; those from before serve on. */
export async function startKeyCheck({ services, environment, management }: KeyCheckOptions): Promise<void> {
  const { MARGAY_KEYS_DIR: folder } = parseConfig(GateConfig, environment);
  if (folder === undefined) return;
  const rings = await Promise.all(services.map((service) => KeyRing.load(folder, service)));
  management.registerCheck('process.keys', 'ready', async () => {
    await Promise.all(rings.map((ring) => ring.refresh()));
    const fault = rings.map((ring) => ring.fault).find((text) => text !== undefined);
    return fault === undefined ? undefined : { degraded: fault };
  });
}
