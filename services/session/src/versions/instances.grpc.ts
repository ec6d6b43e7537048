import type { instancesPb } from '@margay/contracts';
import { InvalidArgumentError, PermissionDeniedError } from '@margay/errors';
import type { GrpcHandlers } from '@margay/platform';
import type { InstanceRepository } from './instance.repository';
import type { InstanceWatch } from './instance-watch';

const INSTANCE = /^[0-9a-f]{8,32}$/;
const VERSION = /^\d{1,5}\.\d{1,5}\.\d{1,5}([-+][0-9A-Za-z.-]{1,40})?$/;
const SYSTEM = 'system:';

export interface InstancesPorts {
  instances: Pick<InstanceRepository, 'beat' | 'remove'>;
  watch: Pick<InstanceWatch, 'lowestSession' | 'neighboursOf'>;
  /** Of the store. */
  generation: number;
}

export function instancesHandlers({
  instances,
  watch,
  generation,
}: InstancesPorts): GrpcHandlers<typeof instancesPb.InstancesDefinition> {
  return {
    async beat({ instance, version, leaves }, context) {
      const { principal } = context.principal();
      if (!principal.startsWith(SYSTEM) || principal === `${SYSTEM}session`)
        throw new PermissionDeniedError('services_only', 'only services of the platform say here that they live');
      if (!INSTANCE.test(instance) || !VERSION.test(version))
        throw new InvalidArgumentError('bad_request', 'instance or version is not of the form it must have');
      // Kept apart from the ids that session replicas give themselves.
      const service = principal.slice(SYSTEM.length);
      const _id = `${service}.${instance}`;
      if (leaves) await instances.remove(_id);
      else await instances.beat({ _id, service, version });
      return { lowestSessionVersion: watch.lowestSession(), ...watch.neighboursOf(service, version) };
    },
    describeStore: async () => ({ generation }),
  };
}
