import { EgressMode, SandboxClassName } from '@margay/contracts';
import { BLOB_SETTINGS } from '@margay/platform';
import { z } from 'zod';

const Project = z.object({
  path: z.string().min(1),
  description: z.string().default(''),
  sandboxClass: SandboxClassName.optional(),
});

function jsonText() {
  return z
    .string()
    .default('{}')
    .transform((text, context) => {
      try {
        return JSON.parse(text) as unknown;
      } catch {
        context.addIssue({ code: 'custom', message: 'is not JSON' });
        return z.NEVER;
      }
    });
}

/** A JSON object in one variable, e.g. `{"shop":{"path":"/srv/shop"}}`. */
const ProjectsJson = jsonText().pipe(z.record(z.string().min(1), Project));

/** Further pools of runners, and the tenants they are for, e.g. `{"big":["acme"]}`; one for nobody finishes what it has. */
const PoolsJson = jsonText()
  .pipe(z.record(z.string().min(1), z.array(z.string().min(1))))
  .superRefine((pools, context) => {
    const tenants = Object.values(pools).flat();
    for (const tenant of new Set(tenants.filter((name, index) => tenants.indexOf(name) !== index)))
      context.addIssue({ code: 'custom', message: `tenant '${tenant}' is in two pools; leave it in one` });
  });

const Store = {
  MARGAY_MONGODB_URL: z.string(),
  MARGAY_MONGODB_DATABASE: z.string().default('margay_g0'),
  ...BLOB_SETTINGS,
};

/** What commands of operators need: the store, and nothing that a service would. */
export const OperatorConfig = z.object(Store);

const Kek = { MARGAY_KEK_FILE: z.string().describe('file of key-encryption keys, see docs/secrets.md') };

/** What renewing the wrapping of data keys needs. */
export const KekConfig = z.object(Kek);

export const SessionConfig = z
  .object({
    MARGAY_SESSION_LISTEN: z.string(),
    ...Store,
    ...Kek,
    MARGAY_NATS_URL: z.string(),
    MARGAY_KEYS_DIR: z.string(),
    MARGAY_TOOL_EXECUTOR_URL: z.string(),
    /** Text of the first key; without it no key is made at the first start. */
    MARGAY_BOOTSTRAP_KEY: z.string().optional(),
    /** How long that key holds, from when it is first seen; 0 = until it is revoked. */
    MARGAY_BOOTSTRAP_KEY_SECONDS: z.coerce.number().int().min(0).default(0),
    /** First part of the keys this installation makes. */
    MARGAY_CELL: z
      .string()
      .regex(/^[a-z0-9]{1,8}$/)
      .default('local'),
    MARGAY_PROJECTS: ProjectsJson,
    /** Sessions may name a host folder as their workspace: only with the process driver on one's own machine. */
    MARGAY_ALLOW_EXTERNAL_CWD: z.stringbool().default(false),
    /** What the operator lets policies of tenants be at most; the egress proxy holds to its own in any case. */
    MARGAY_EGRESS_MAX_MODE: EgressMode.default('public'),
    /** Model of sessions that name none; without it runs answer `models_not_ready`. */
    MARGAY_MODEL: z.string().optional(),
    OPENAI_BASE_URL: z.string().optional(),
    OPENAI_API_KEY: z.string().optional(),
    /** Runners of all tenants that no pool of `MARGAY_RUNNER_POOLS` is for. */
    MARGAY_POOL: z.string().default('default'),
    MARGAY_RUNNER_POOLS: PoolsJson,
    /** Steps of a run's whole agent tree; 0 = unlimited. */
    MARGAY_STEP_BUDGET: z.coerce.number().int().min(0).default(0),
    /** A runner whose beat has not moved for so long is lost. Not below 9: until then it may be given runs again. */
    MARGAY_RUNNER_LOST_SECONDS: z.coerce.number().positive().default(15),
    /** Runs that a tenant whose document names no cap may have running at once; 0 = as many as there are slots. */
    MARGAY_TENANT_CONCURRENT_RUNS: z.coerce.number().int().min(0).default(0),
    /** Share of the runners of a tenant whose document names no weight. */
    MARGAY_TENANT_WEIGHT: z.coerce.number().int().min(1).max(100).default(10),
    /** Metrics of waiting and of ended runs name the tenant: the first 200 that a replica sees. */
    MARGAY_METRICS_TENANT_LABEL: z.stringbool().default(false),
    /** A run that its runner does not list in two successive heartbeats so long after it was given away is taken back. */
    MARGAY_RUN_UNLISTED_SECONDS: z.coerce.number().min(0).default(5),
  })
  .refine(({ MARGAY_POOL, MARGAY_RUNNER_POOLS }) => !(MARGAY_POOL in MARGAY_RUNNER_POOLS), {
    path: ['MARGAY_RUNNER_POOLS'],
    error: ({ input }) => `'${(input as { MARGAY_POOL: string }).MARGAY_POOL}' is the shared pool; give it no tenants`,
  });
export type SessionConfig = z.infer<typeof SessionConfig>;
