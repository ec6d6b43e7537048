import { BLOB_SETTINGS, LOG_LEVELS } from '@margay/platform';
import { z } from 'zod';

/** What the process itself needs; each service reads its own part of the environment. */
export const ProcessConfig = z.object({
  MARGAY_MANAGEMENT_LISTEN: z.string().regex(/:\d+$/).default('127.0.0.1:0').describe('host:port'),
  MARGAY_LOG_LEVEL: z.enum(LOG_LEVELS).default('info').describe(LOG_LEVELS.join(', ')),
  MARGAY_GRPC_CONNECTION_AGE_SECONDS: z.coerce
    .number()
    .positive()
    .default(300)
    .describe('seconds after which clients are sent to connect anew'),
  /** For tests only, see docs/protocol.md §5: the process fails on purpose. */
  MARGAY_FAULT_POINTS: z.string().optional().describe('point=action[:ms][@n][?text], several separated by ;'),
  MARGAY_TLS_DIR: z.string().optional().describe('folder with tls.crt, tls.key and ca.crt'),
  MARGAY_SHUTDOWN_LIMIT_SECONDS: z.coerce.number().positive().default(20).describe('seconds'),
});

/** Of the commands that see to an installation. */
export const BootstrapConfig = z.object({
  MARGAY_CELL: z
    .string()
    .regex(/^[a-z0-9]{1,8}$/)
    .default('local')
    .describe('1 to 8 small letters and digits'),
});
const CheckKey = { MARGAY_CHECK_KEY: z.string().optional().describe('an API key') };
export const CheckConfig = z.object(CheckKey);
export const PrepareStoreConfig = z.object({
  MARGAY_MONGODB_URL: z.string().describe('the document store'),
});

/** Of processes that are clients of session. */
export const GateConfig = z.object({
  MARGAY_SESSION_URL: z.string().optional().describe('host:port of session'),
  MARGAY_KEYS_DIR: z.string().optional().describe('folder of the keys'),
});

/** What the doctor looks at; whatever is missing is a finding, not an error. */
export const DoctorConfig = z.object({
  MARGAY_MONGODB_URL: z.string().optional().describe('the document store'),
  MARGAY_MONGODB_DATABASE: z.string().default('margay_g0').describe('name of the database'),
  ...BLOB_SETTINGS,
  MARGAY_NATS_URL: z.string().optional().describe('the NATS server'),
  MARGAY_KEYS_DIR: z.string().optional().describe('folder of the keys'),
  MARGAY_HOME: z.string().optional().describe('folder of workspaces and records'),
  MARGAY_KEK_FILE: z.string().optional().describe('file of key-encryption keys'),
  MARGAY_TLS_DIR: z.string().optional().describe('folder with tls.crt, tls.key and ca.crt'),
  MARGAY_TOOL_EXECUTOR_URL: z.string().optional().describe('host:port of tool-executor'),
  ...CheckKey,
  /** Kubernetes tells every container. */
  KUBERNETES_SERVICE_HOST: z.string().optional(),
  KUBERNETES_SERVICE_PORT: z.string().default('443'),
});
export type DoctorConfig = z.infer<typeof DoctorConfig>;

/** The environment of this process, read here and nowhere else. */
export const processEnvironment = (): NodeJS.ProcessEnv => process.env;
