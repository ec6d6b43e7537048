/** Which runners drive whose runs. A run stays in the pool that it was accepted for. */
export class RunnerPools {
  private readonly ofTenant: ReadonlyMap<string, string>;

  /**
   * @param shared pool of every tenant that has no other
   * @param own pools of their own: pool → tenants; a tenant is in one of them at most; one without tenants finishes what is queued there
   */
  constructor(
    private readonly shared: string,
    private readonly own: Readonly<Record<string, readonly string[]>> = {},
  ) {
    this.ofTenant = new Map(Object.entries(own).flatMap(([pool, tenants]) => tenants.map((tenant) => [tenant, pool])));
  }

  get names(): string[] {
    return [this.shared, ...Object.keys(this.own)];
  }

  of(tenantId: string): string {
    return this.ofTenant.get(tenantId) ?? this.shared;
  }
}
