import { specHashOf, type SandboxClass, type SandboxClasses } from './classes';
import type { PodSettings } from './pod-spec';

export interface PoolSettingsOptions {
  namespace: string;
  /** Further ones, and the tenants whose sandboxes and volumes lie there. */
  tenantsOf?: Readonly<Record<string, readonly string[]>>;
  classes: SandboxClasses;
  pod: PodSettings;
  /** Id of the key that signs grants. */
  grantKid: string;
  /** Sandboxes one tenant may have at once. */
  tenantMax: number;
}

export interface SandboxPool {
  namespace: string;
  class: string;
  /** `<namespace>/<class>`. */
  name: string;
}

/** What sandboxes are made from, and where. */
export class PoolSettings {
  private readonly namespaceByTenant: ReadonlyMap<string, string>;

  constructor(private readonly options: PoolSettingsOptions) {
    const own = Object.entries(options.tenantsOf ?? {});
    this.namespaceByTenant = new Map(own.flatMap(([name, tenants]) => tenants.map((tenantId) => [tenantId, name])));
  }

  /** All of them, that of tenants without one of their own first. */
  get namespaces(): string[] {
    return [...new Set([this.options.namespace, ...Object.keys(this.options.tenantsOf ?? {})])];
  }

  /** Where new volumes and sandboxes of a tenant are made. */
  namespaceOf(tenantId: string): string {
    return this.namespaceByTenant.get(tenantId) ?? this.options.namespace;
  }

  /** Whose new ones are made there; undefined: all that have none of their own. */
  tenantsOf(namespace: string): readonly string[] | undefined {
    return namespace === this.options.namespace ? undefined : (this.options.tenantsOf?.[namespace] ?? []);
  }

  get pod(): PodSettings {
    return this.options.pod;
  }

  get install(): string {
    return this.options.pod.install;
  }

  get grantKid(): string {
    return this.options.grantKid;
  }

  get tenantMax(): number {
    return this.options.tenantMax;
  }

  get classNames(): string[] {
    return Object.keys(this.options.classes);
  }

  class(name: string): SandboxClass {
    const found = this.options.classes[name];
    if (!found) throw new Error(`There is no sandbox class ${name}.`);
    return found;
  }

  poolOf(name: string, namespace: string): string {
    return `${namespace}/${name}`;
  }

  /** Of each class in each namespace one. */
  get pools(): SandboxPool[] {
    const { namespaces, classNames } = this;
    return namespaces.flatMap((namespace) =>
      classNames.map((name) => ({ namespace, class: name, name: this.poolOf(name, namespace) })),
    );
  }

  /** Changes with everything a pod is made from. */
  specHashOf(name: string): string {
    return specHashOf(this.class(name), this.options.pod);
  }
}
