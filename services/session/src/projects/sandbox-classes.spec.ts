import { SandboxClasses } from './sandbox-classes';

const OFFERED = ['default', 'dense', 'strict'];

function classesOf({ usual, allowed }: { usual?: string; allowed?: string[] } = {}, canTell = true): SandboxClasses {
  return new SandboxClasses({
    tenants: { of: () => Promise.resolve({ usual, allowed }) },
    projects: { classOf: (_, project) => Promise.resolve(project === 'lab' ? 'strict' : undefined) },
    offered: { offers: (name) => Promise.resolve(!canTell || OFFERED.includes(name) || OFFERED) },
  });
}

const choice = (wanted: string, project: string | null = null) => ({ tenantId: 't1', wanted, project });

describe('the class of a sandbox', () => {
  it('is that of the session, else of its project, else of the tenant, else the usual one', async () => {
    const classes = classesOf({ usual: 'dense' });
    expect(await classes.of(choice('default', 'lab'))).toBe('default');
    expect(await classes.of(choice('', 'lab'))).toBe('strict');
    expect(await classes.of(choice('', 'shop'))).toBe('dense');
    expect(await classes.of(choice(''))).toBe('dense');
    expect(await classesOf().of(choice(''))).toBe('default');
  });

  it('is one of those that the tenant is allowed, whoever chose it', async () => {
    const refused = { reason: 'sandbox_class_not_allowed', code: 'PERMISSION_DENIED' };
    const classes = classesOf({ allowed: ['dense'] });
    expect(await classes.of(choice('dense'))).toBe('dense');
    for (const wanted of [choice('strict'), choice('', 'lab'), choice('')])
      await expect(classes.of(wanted)).rejects.toMatchObject(refused);
    await expect(classesOf({ allowed: [] }).of(choice('dense'))).rejects.toMatchObject(refused);
  });

  it('is one that there is, where anybody can tell', async () => {
    const unknown = { reason: 'sandbox_class_unknown', code: 'INVALID_ARGUMENT' };
    await expect(classesOf().of(choice('huge'))).rejects.toMatchObject(unknown);
    await expect(classesOf().of(choice('huge'))).rejects.toThrow('default, dense, strict');
    expect(await classesOf({}, false).of(choice('huge'))).toBe('huge');
    expect(await classesOf().chosen(choice('huge'))).toBe('huge');
  });
});
