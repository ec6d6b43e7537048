import { homedir } from 'node:os';
import path from 'node:path';
import { BLOB_SETTINGS } from '@margay/platform';
import { z } from 'zod';

/** What is no JSON stays text, which no schema of an object takes. */
function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

function areDisjoint(tenantsOf: Readonly<Record<string, readonly string[]>>): boolean {
  const tenants = Object.values(tenantsOf).flat();
  return new Set(tenants).size === tenants.length;
}

/** For the driver `kubernetes`, see docs/sandboxes.md. */
const KubernetesSettings = {
  MARGAY_KUBECONFIG: z.string().optional().describe('a kubeconfig; without it the service account of the pod'),
  MARGAY_WORKSPACES_NAMESPACE: z.string().default('margay-workspaces').describe('where sandboxes run'),
  MARGAY_WORKSPACES_EXTRA_NAMESPACES: z
    .string()
    .default('{}')
    .transform(jsonOf)
    .pipe(z.record(z.string(), z.array(z.string())))
    .refine(areDisjoint, 'a tenant is in two namespaces')
    .describe('JSON: further namespaces, and the tenants whose sandboxes run there'),
  MARGAY_NATS_URL: z.string().optional().describe('address of NATS, where ends of sandboxes are told'),
  MARGAY_MULTI_TENANT: z
    .stringbool()
    .default(false)
    .describe('true: no second tenant before network policies are known to be enforced'),
  KUBERNETES_SERVICE_HOST: z.string().optional().describe('set by Kubernetes'),
  KUBERNETES_SERVICE_PORT: z.string().default('443').describe('set by Kubernetes'),
  MARGAY_WATCH_NODES: z
    .stringbool()
    .default(false)
    .describe('true: cordoned nodes are emptied of sandboxes; needs the right to see nodes'),
  MARGAY_EGRESS_ADDRESS: z.string().regex(/:\d+$/).optional().describe('host:port of the egress proxy for sandboxes'),
  MARGAY_INSTALL_ID: z.string().default('margay').describe('tells sandboxes of installations apart, a label value'),
  MARGAY_SANDBOX_IMAGE: z.string().optional().describe('image of sandboxes'),
  MARGAY_SANDBOX_PULL_POLICY: z.enum(['Always', 'IfNotPresent', 'Never']).default('IfNotPresent'),
  MARGAY_SANDBOX_PULL_SECRETS: z
    .string()
    .default('')
    .transform((names) => names.split(',').filter((name) => name !== ''))
    .describe('names of secrets, separated by commas'),
  MARGAY_SANDBOX_CLASSES_FILE: z.string().optional().describe('a YAML file of sandbox classes'),
  MARGAY_SANDBOX_TENANT_MAX: z.coerce.number().int().min(1).default(20).describe('sandboxes of one tenant'),
  MARGAY_SANDBOX_POOL_SECONDS: z.coerce.number().min(0.2).default(5).describe('between looks at the waiting sandboxes'),
  MARGAY_WORKSPACES_DORMANT_DAYS: z.coerce
    .number()
    .min(0)
    .default(14)
    .describe('days without use after which a volume becomes an archive; 0 = never'),
  MARGAY_SNAPSHOT_MAX_BYTES: z.coerce.number().int().min(1).optional().describe('bytes of one archive of a workspace'),
  MARGAY_SANDBOX_COLLECT_SECONDS: z.coerce.number().min(0.2).default(30).describe('between collections'),
  MARGAY_SANDBOX_UNPAIRED_SECONDS: z.coerce
    .number()
    .min(1)
    .default(60)
    .describe('seconds after which a pod without a record, or a record without its pod, is removed'),
};

/** See docs/workspaces.md. */
const WorkspaceSettings = {
  MARGAY_WORKSPACE_TEMPLATES_FILE: z.string().optional().describe('a YAML file of what new projects can begin with'),
  MARGAY_WORKSPACE_MAX_BYTES: z.coerce
    .number()
    .int()
    .min(1)
    .default(10 * 1024 ** 3)
    .describe('bytes that content may have, unpacked'),
  MARGAY_WORKSPACE_SESSION_DAYS: z.coerce.number().min(0).default(30).describe('days after the last use'),
  MARGAY_WORKSPACE_SESSION_DAYS_BY_TENANT: z
    .string()
    .default('{}')
    .transform(jsonOf)
    .pipe(z.record(z.string(), z.number().min(0)))
    .describe('JSON: tenant to days'),
  MARGAY_WORKSPACE_PROJECT_DAYS: z.coerce.number().min(0).default(30).describe('days after the end of the project'),
  MARGAY_WORKSPACE_SWEEP_SECONDS: z.coerce.number().min(0.2).default(60).describe('between looks at what is to go'),
};

export const ToolExecutorConfig = z.object({
  MARGAY_TOOL_EXECUTOR_LISTEN: z.string().describe('host:port of its gRPC server'),
  MARGAY_KEYS_DIR: z.string().describe('folder of the service keys'),
  /** Asked for what is to be kept out of results; without it nothing is. */
  MARGAY_SESSION_URL: z.string().optional().describe('host:port of session'),
  MARGAY_HOME: z
    .string()
    .default(path.join(homedir(), '.margay'))
    .transform((folder) => path.resolve(folder))
    .describe('folder of workspaces and sandboxes'),
  MARGAY_SANDBOX_DRIVER: z.enum(['process', 'kubernetes']).default('process').describe('process or kubernetes'),
  MARGAY_SANDBOXD_ENTRY: z
    .string()
    .transform((file) => path.resolve(file))
    .optional()
    .describe('the bundled sandboxd, one file, for the driver "process"'),
  MARGAY_SANDBOX_ISOLATION: z
    .enum(['auto', 'bwrap', 'uid', 'none'])
    .default('auto')
    .describe('auto, bwrap, uid or none'),
  MARGAY_SANDBOX_IDLE_STOP_SECONDS: z.coerce.number().int().min(1).default(900).describe('whole seconds from 1'),
  MARGAY_SANDBOX_MEMORY_BYTES: z.coerce
    .number()
    .int()
    .min(64 * 1024 ** 2)
    .default(2 * 1024 ** 3)
    .describe('bytes'),
  MARGAY_SANDBOX_PROCESSES: z.coerce.number().int().min(16).default(512).describe('a number from 16'),
  /** Of the egress proxy on this machine, see docs/egress.md; without it sandboxes reach nothing outside. */
  MARGAY_EGRESS_LOCAL_SOCKET: z.string().optional().describe('path of the private Unix socket of egress'),
  /** Of the authority by which egress reads requests; sandboxes are given it to believe. */
  MARGAY_EGRESS_CA_FILE: z.string().optional().describe('path of a certificate, PEM'),
  ...KubernetesSettings,
  ...WorkspaceSettings,
  /** Tools that the operator defines, see docs/http-tools.md; without it no store is needed. */
  MARGAY_HTTP_TOOLS_FILE: z.string().optional().describe('a JSON file of HTTP tools'),
  MARGAY_EGRESS_SERVICES_ADDRESS: z
    .string()
    .regex(/:\d+$/)
    .optional()
    .describe('host:port of the egress proxy for services, by which HTTP tools go out'),
  MARGAY_MONGODB_URL: z
    .string()
    .optional()
    .describe('the document store: of workspaces, and of tools outside sandboxes'),
  MARGAY_MONGODB_DATABASE: z.string().default('margay_g0').describe('name of the database'),
  ...BLOB_SETTINGS,
  MARGAY_CALL_LOST_SECONDS: z.coerce
    .number()
    .min(0.5)
    .default(5)
    .describe('seconds after which the process of an unconfirmed call outside sandboxes counts as gone'),
  /** For tests only; sandboxes are armed with it, too. */
  MARGAY_FAULT_POINTS: z.string().optional().describe('see docs/protocol.md §5'),
  /** Only looked at: without a sandbox the platform must not be reachable from elsewhere. */
  MARGAY_GATEWAY_LISTEN: z.string().optional(),
});
export type ToolExecutorConfig = Readonly<z.infer<typeof ToolExecutorConfig>>;
