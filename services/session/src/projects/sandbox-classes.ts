import { USUAL_SANDBOX_CLASS } from '@margay/contracts';
import { InvalidArgumentError, PermissionDeniedError } from '@margay/errors';
import type { TenantClasses } from '../access/tenant-classes';
import type { ProjectsService } from './projects.service';
import type { SandboxIsolation } from './sandbox-isolation';

export interface SandboxClassesPorts {
  tenants: Pick<TenantClasses, 'of'>;
  projects: Pick<ProjectsService, 'classOf'>;
  offered: Pick<SandboxIsolation, 'offers'>;
}

/** Who chooses a class: the session itself, or the project it works in. */
export interface ClassChoice {
  tenantId: string;
  /** Empty: the session names none. */
  wanted: string;
  /** As a binding names it. */
  project: string | null;
}

/** Which class of sandboxes a session gets (cluster §1.1). */
export class SandboxClasses {
  constructor(private readonly ports: SandboxClassesPorts) {}

  /** What the session says, else its project, else the tenant; whether it can be had is not looked at. */
  async chosen({ tenantId, wanted, project }: ClassChoice): Promise<string> {
    if (wanted !== '') return wanted;
    const ofProject = project === null ? undefined : await this.ports.projects.classOf(tenantId, project);
    return ofProject ?? (await this.ports.tenants.of(tenantId)).usual ?? USUAL_SANDBOX_CLASS;
  }

  /** The same, of one that can be had. @throws those of `require` */
  async of(choice: ClassChoice): Promise<string> {
    const chosen = await this.chosen(choice);
    await this.require(choice.tenantId, chosen);
    return chosen;
  }

  /**
   * @throws PermissionDeniedError `sandbox_class_not_allowed`; InvalidArgumentError `sandbox_class_unknown`, where
   *   tool-executor can be asked: it looks again before a sandbox is made
   */
  async require(tenantId: string, name: string): Promise<void> {
    const { allowed } = await this.ports.tenants.of(tenantId);
    if (allowed && !allowed.includes(name)) throw notAllowed(name, allowed);
    const offered = await this.ports.offered.offers(name);
    if (offered !== true) throw unknownClass(name, offered);
  }
}

function notAllowed(name: string, allowed: readonly string[]): Error {
  const words = allowed.length === 0 ? 'none' : allowed.join(', ');
  return new PermissionDeniedError(
    'sandbox_class_not_allowed',
    `sandbox class '${name}' is not allowed to this tenant; allowed: ${words}`,
  );
}

function unknownClass(name: string, offered: readonly string[]): Error {
  return new InvalidArgumentError(
    'sandbox_class_unknown',
    `there is no sandbox class '${name}' here; there are: ${offered.join(', ')}`,
  );
}
