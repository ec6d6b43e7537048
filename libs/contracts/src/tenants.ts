import { z } from 'zod';

/** Name of a template of sandboxes; it becomes the value of a label. */
export const SandboxClassName = z
  .string()
  .regex(
    /^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$/,
    'a sandbox class is named by at most 63 letters, digits and . _ - between them',
  );

/** The class of whoever names none. */
export const USUAL_SANDBOX_CLASS = 'default';

const ConcurrentRuns = z.number().int().min(0);
const AllowedClasses = z.array(SandboxClassName).max(64);
const Weight = z.number().int().min(1).max(100);

/** A tenant as the public API shows it. */
export const Tenant = z.object({
  id: z.string(),
  slug: z.string(),
  name: z.string(),
  state: z.enum(['active', 'suspended', 'deleting', 'deleted']),
  weight: Weight.nullable().describe("share of the runners; null = the installation's default"),
  sandbox_class: SandboxClassName.nullable().describe(
    'of sessions that name none, and whose project names none; null = `default`',
  ),
  ceilings: z.object({
    concurrent_runs: ConcurrentRuns.nullable().describe("null = the installation's default"),
    allowed_classes: AllowedClasses.nullable().describe('sandbox classes it may use; null = all, [] = none'),
  }),
});
export type Tenant = z.infer<typeof Tenant>;

/** What the operator changes of a tenant: null takes back what was set, what is absent stays. */
export const TenantChange = z.strictObject({
  weight: Weight.nullable().optional(),
  sandbox_class: SandboxClassName.nullable().optional(),
  ceilings: z
    .strictObject({
      concurrent_runs: ConcurrentRuns.nullable().optional(),
      allowed_classes: AllowedClasses.nullable().optional(),
    })
    .optional(),
});
export type TenantChange = z.infer<typeof TenantChange>;
