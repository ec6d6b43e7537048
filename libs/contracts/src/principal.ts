import { z } from 'zod';

export const Role = z.enum(['viewer', 'member', 'admin', 'owner', 'operator']);
export type Role = z.infer<typeof Role>;

/** Who acts; signed by the service that authenticated it and carried in gRPC metadata `margay-principal`. */
export const Principal = z.object({
  v: z.literal(1),
  /** Service that signed it. */
  iss: z.string(),
  tenantId: z.string(),
  /** `user:<id>`, `svc:<name>`, `system:<service>`, `platform:operator`. */
  principal: z.string(),
  role: Role,
  /** null = no restriction. */
  scopes: z.array(z.string()).nullable(),
  keyId: z.string().optional(),
  requestId: z.string().optional(),
});
export type Principal = z.infer<typeof Principal>;

/** What a run may touch; signed by session at `Assign`, renewed with heartbeats, carried as `margay-grant`. */
export const RunGrant = z.object({
  v: z.literal(1),
  tenantId: z.string(),
  sessionId: z.string(),
  runId: z.string(),
  epoch: z.number().int(),
  storeGeneration: z.number().int(),
  /** Who started the run. */
  principal: z.string(),
  /** Where the session's workspace lies. `own`: the driver makes one for the session; `path`: this folder, in place. */
  workspace: z.discriminatedUnion('kind', [
    z.object({ kind: z.literal('own') }),
    z.object({ kind: z.literal('path'), path: z.string() }),
  ]),
});
export type RunGrant = z.infer<typeof RunGrant>;

/** What tool-executor may ask of one sandbox; signed by it, carried as `margay-grant`. */
export const SandboxGrant = z.object({
  v: z.literal(1),
  sandboxId: z.string(),
  tenantId: z.string(),
  sessionId: z.string(),
  runId: z.string().optional(),
  storeGeneration: z.number().int(),
  epoch: z.number().int(),
  scope: z.array(z.enum(['execute', 'files', 'stdio', 'terminal', 'admin'])),
});
export type SandboxGrant = z.infer<typeof SandboxGrant>;

/** Metadata keys of gRPC calls between services. */
export const METADATA = {
  principal: 'margay-principal',
  grant: 'margay-grant',
  reason: 'margay-reason',
  details: 'margay-details-bin',
  retryAfterMs: 'margay-retry-after-ms',
  requestId: 'margay-request-id',
} as const;
