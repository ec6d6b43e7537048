import { z } from 'zod';

const milliseconds = (fallback: number): z.ZodType<number> => z.coerce.number().int().min(0).default(fallback);
const jsonList = z
  .string()
  .default('[]')
  .transform((text): unknown => JSON.parse(text))
  .pipe(z.array(z.string()));

const Environment = z.object({
  MARGAY_SANDBOX_ID: z.string().min(1),
  /** `unix:/path` of the one socket, or `host:port`, where TLS is spoken. */
  MARGAY_SANDBOX_LISTEN: z.string().regex(/^unix:.|:\d+$/),
  /** Public keys (SPKI PEM, one after the other) of whoever may sign grants. */
  MARGAY_SANDBOX_TRUST_FILE: z.string().optional(),
  /** The keys themselves, where there is no file. */
  MARGAY_SANDBOX_TRUST: z.string().optional(),
  /** Journal, incarnation and highest epoch; outside the workspace. */
  MARGAY_SANDBOX_STATE_DIR: z.string(),
  MARGAY_SANDBOX_ROOT: z.string(),
  MARGAY_SANDBOX_ALLOWED_ROOTS: jsonList,
  /** Which folders these paths must be, as `device:number`: others may have been put in their place. */
  MARGAY_SANDBOX_PLACES: z
    .string()
    .default('{}')
    .transform((text): unknown => JSON.parse(text))
    .pipe(z.record(z.string(), z.string())),
  /** Where output beyond the memory bound goes; readable by the file tools. */
  MARGAY_SANDBOX_SPILL_DIR: z.string(),
  /** Where files that people attached go; readable by the file tools. */
  MARGAY_SANDBOX_ATTACHMENTS_DIR: z.string().default('/margay/attachments'),
  /** The egress proxy's socket for this sandbox; it gets a port of the loopback. */
  MARGAY_SANDBOX_PROXY_SOCKET: z.string().optional(),
  /** The egress proxy with this sandbox's name and token, where it can be reached as it is. */
  MARGAY_SANDBOX_PROXY_URL: z.string().optional(),
  /** The authority by which the egress proxy reads requests, for programs to believe. */
  MARGAY_SANDBOX_CA_FILE: z.string().optional(),
  /** The certificate itself (PEM), where there is no file. */
  MARGAY_SANDBOX_CA: z.string().optional(),
  MARGAY_SANDBOX_ISOLATION: z.enum(['bwrap', 'pod', 'uid', 'none']),
  /** The lowest epoch served from the start, when an earlier life of this sandbox saw it. */
  MARGAY_SANDBOX_MIN_GENERATION: z.coerce.number().int().default(0),
  MARGAY_SANDBOX_MIN_EPOCH: z.coerce.number().int().default(0),
  /** Ends by itself after this long without a call, so that a lost owner leaves nothing behind; 0 = never. */
  MARGAY_SANDBOX_IDLE_EXIT_MS: milliseconds(1_800_000),
  /** Told to end, it serves no new call and gives those that run so long. */
  MARGAY_SANDBOX_DRAIN_MS: milliseconds(0),
  /** Its files end with it: drained, it waits so long for somebody to take the last archive. */
  MARGAY_SANDBOX_LAST_ARCHIVE_MS: milliseconds(0),
  MARGAY_SANDBOX_MEMORY_BYTES: z.coerce
    .number()
    .int()
    .default(2 * 1024 ** 3),
  /** Limits of each call. */
  MARGAY_SANDBOX_PROFILE: z.enum(['default', 'strict']).default('default'),
  /** 0 = no limit: where other processes share the user. */
  MARGAY_SANDBOX_PROCESSES: z.coerce.number().int().default(512),
  /** What the workspace of a pod may take; near that, writes fail before the kubelet takes the pod. 0 = not watched. */
  MARGAY_SANDBOX_WORKSPACE_BYTES: z.coerce.number().int().default(0),
  /** Of a pod as a whole, counted every second. 0 = not watched. */
  MARGAY_SANDBOX_POD_PROCESSES: z.coerce.number().int().default(0),
  /** Empty where the first grant decides. */
  MARGAY_SESSION_ID: z.string().default(''),
  /** For tests only: the daemon fails on purpose. */
  MARGAY_FAULT_POINTS: z.string().optional(),
  PATH: z.string().optional(),
  HOME: z.string().optional(),
  LANG: z.string().optional(),
  TZ: z.string().optional(),
});
export type SandboxdConfig = Readonly<z.infer<typeof Environment>>;

/** Throws with the faulty names, never with values. */
export function readConfig(environment: NodeJS.ProcessEnv = process.env): SandboxdConfig {
  const parsed = Environment.safeParse(environment);
  if (parsed.success) return Object.freeze(parsed.data);
  const names = [...new Set(parsed.error.issues.map((issue) => String(issue.path[0])))];
  throw new Error(`sandboxd cannot start: check ${names.join(', ')}.`);
}
