import { specHashOf, type SandboxClass, type SandboxClasses } from './classes';
import type { PodSettings } from './pod-spec';

/** The class of sessions that name none. */
export const USUAL_CLASS = 'default';

export interface PoolSettingsOptions {
  namespace: string;
  classes: SandboxClasses;
  pod: PodSettings;
  /** Id of the key that signs grants. */
  grantKid: string;
  /** Sandboxes one tenant may have at once. */
  tenantMax: number;
}

/** What sandboxes are made from. */
export class PoolSettings {
  constructor(private readonly options: PoolSettingsOptions) {}

  get namespace(): string {
    return this.options.namespace;
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

  poolOf(name: string): string {
    return `${this.options.namespace}/${name}`;
  }

  /** Changes with everything a pod is made from. */
  specHashOf(name: string): string {
    return specHashOf(this.class(name), this.options.pod);
  }
}
