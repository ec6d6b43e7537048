import { InvalidArgumentError } from '@margay/errors';
import { KeyRing, type ServiceShared } from '@margay/platform';
import type { EgressConfig } from '../config';
import { Limits } from '../limits/limits';
import type { EgressPolicies } from '../policy/policy-file';
import { EgressProxy } from '../proxy/egress-proxy';
import { Gate, type GateOptions } from '../proxy/gate';
import { ServiceDoor } from './service-door';
import { ServiceIdentity } from './service-identity';
import { ServicePolicies } from './service-policies';

export interface ServicesParts extends Pick<GateOptions, 'resolve' | 'onEnd' | 'onBytes'> {
  operator: Pick<EgressPolicies, 'settings' | 'onChange'>;
  shared: Pick<ServiceShared, 'tls'>;
}

export interface OpenServices {
  readonly openCount: number;
  /** Nobody is let in any more. */
  stop(): void;
  close(graceMs: number): Promise<void>;
}

/** The way out for services, beside that of sandboxes; undefined where no address is given for it. */
export async function openServices(
  { MARGAY_EGRESS_SERVICES_LISTEN: listen, MARGAY_KEYS_DIR: folder }: EgressConfig,
  { operator, shared, ...outside }: ServicesParts,
): Promise<OpenServices | undefined> {
  if (listen === undefined) return undefined;
  if (folder === undefined)
    throw new InvalidArgumentError('bad_environment', 'Cannot start: with MARGAY_EGRESS_SERVICES_LISTEN, set MARGAY_KEYS_DIR.'); // prettier-ignore
  const identity = new ServiceIdentity(await KeyRing.load(folder, 'egress', shared));
  const gate = new Gate({
    ...outside,
    policies: new ServicePolicies(operator),
    identify: (request) => identity.identify(request),
    limits: new Limits(Date.now),
    now: Date.now,
  });
  const proxy = new EgressProxy({ gate, now: Date.now, isAnyProtocol: true });
  const door = new ServiceDoor(proxy, shared.tls);
  await door.listen(listen);
  return {
    get openCount() {
      return gate.openCount;
    },
    stop: () => door.close(),
    close: (graceMs) => proxy.close(graceMs),
  };
}
