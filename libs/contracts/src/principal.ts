import { z } from 'zod';
import { SandboxClassName } from './tenants';

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

/** Name of a worktree's folder: no dots at its beginning, so that it never leads anywhere else. */
export const WORKTREE_SLUG = /^[A-Za-z0-9_-][A-Za-z0-9._-]{0,55}$/;

const SharedProject = z.object({ kind: z.literal('project'), projectId: z.string().regex(/^[0-9a-f]{32}$/) });
const PathInPlace = z.object({ kind: z.literal('path'), path: z.string() });

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
  /** Whose session it is; absent in grants of older services. */
  owner: z.string().optional(),
  /** Of its sandbox; absent = `default`. */
  sandboxClass: SandboxClassName.optional(),
  /**
   * Where the session's workspace lies. `own`: the driver makes one for the session; `project`: one that all sessions of
   * the project share; `path`: this folder, in place; `worktree`: `.margay/worktrees/<slug>` of one of these two.
   */
  workspace: z.discriminatedUnion('kind', [
    z.object({ kind: z.literal('own') }),
    SharedProject,
    PathInPlace,
    z.object({
      kind: z.literal('worktree'),
      of: z.discriminatedUnion('kind', [SharedProject, PathInPlace]),
      slug: z.string().regex(WORKTREE_SLUG),
    }),
  ]),
});
export type RunGrant = z.infer<typeof RunGrant>;

/** What tool-executor may ask of one sandbox; signed by it, carried as `margay-grant`. */
export const SandboxGrant = z.object({
  v: z.literal(1),
  /** Who it is made for: the sandbox's id, or the UID of its pod. */
  sandboxId: z.string(),
  tenantId: z.string(),
  /** Absent: it serves nobody yet, and is only greeted. */
  sessionId: z.string().optional(),
  runId: z.string().optional(),
  storeGeneration: z.number().int(),
  epoch: z.number().int(),
  scope: z.array(z.enum(['execute', 'files', 'stdio', 'terminal', 'admin'])),
  /** Tells grants apart in records. */
  jti: z.string().optional(),
});
export type SandboxGrant = z.infer<typeof SandboxGrant>;

/** What a link that cannot carry a key may be used for. */
export const TicketPurpose = z.enum(['stream', 'terminal', 'ide', 'blob']);
export type TicketPurpose = z.infer<typeof TicketPurpose>;

/** Stands for a key for less than a minute, for one purpose; signed by the gateway for itself, carried as `?ticket=`. */
export const Ticket = z.object({
  v: z.literal(1),
  purpose: TicketPurpose,
  tenantId: z.string(),
  principal: z.string(),
  /** The key it was made with, and its SHA-256 (base64url); both absent: the platform operator's token. */
  keyId: z.string().optional(),
  keySha256: z.string().optional(),
  /** First 8 bytes of the id of each session it is good for, base64url; absent = all that the key may read. */
  sessions: z.string().optional(),
  /** Good for the feed of its user too. */
  user: z.boolean(),
});
export type Ticket = z.infer<typeof Ticket>;

/** Metadata keys of gRPC calls between services. */
export const METADATA = {
  principal: 'margay-principal',
  grant: 'margay-grant',
  reason: 'margay-reason',
  details: 'margay-details-bin',
  retryAfterMs: 'margay-retry-after-ms',
  requestId: 'margay-request-id',
} as const;
