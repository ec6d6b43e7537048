import { z } from 'zod';

export const EgressConfig = z.object({
  MARGAY_EGRESS_POLICY_FILE: z.string().describe('a JSON file of who may reach what, see docs/egress.md'),
  /** For tool-executor on the same machine; its folder is closed to other users. */
  MARGAY_EGRESS_LOCAL_SOCKET: z.string().startsWith('/').optional().describe('path of the private Unix socket'),
  /** For sandboxes that reach it over a network; then the next two are needed as well. */
  MARGAY_EGRESS_LISTEN: z.string().regex(/:\d+$/).optional().describe('host:port of the proxy'),
  /** For services that go out; needs the keys. */
  MARGAY_EGRESS_SERVICES_LISTEN: z.string().regex(/:\d+$/).optional().describe('host:port of the proxy for services'),
  MARGAY_TOOL_EXECUTOR_URL: z.string().optional().describe('address of tool-executor, which knows the sandboxes'),
  /** Keeps policies of tenants and the secrets that rules add to requests; needs the keys, too. */
  MARGAY_SESSION_URL: z.string().optional().describe('address of session'),
  MARGAY_KEYS_DIR: z.string().optional().describe('folder of the service keys'),
  /** `ca.pem` and `ca.key.pem`; made there where they are missing. Without it, rules with `intercept` refuse tunnels. */
  MARGAY_EGRESS_CA_DIR: z.string().startsWith('/').optional().describe('path of the folder of the authority'),
  MARGAY_EGRESS_TRUST: z.string().optional().describe('further authorities of hosts, PEM'),
  MARGAY_EGRESS_DRAIN_SECONDS: z.coerce.number().min(0).default(5).describe('seconds'),
  /** Changes in session act sooner where they are announced; they are looked for every two seconds in any case. */
  MARGAY_NATS_URL: z.string().optional().describe('address of NATS'),
  MARGAY_EGRESS_POLICY_LOOK_SECONDS: z.coerce.number().min(0.1).default(1).describe('seconds from 0.1'),
});
export type EgressConfig = Readonly<z.infer<typeof EgressConfig>>;
