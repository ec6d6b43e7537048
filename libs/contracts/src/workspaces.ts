import { z } from 'zod';

const URL_MAX_CHARS = 2_048;
const DEPTH_MAX = 1_000_000;
const REF = /^(?![-/.])(?!.*(\.\.|@\{|\/\/))[^\p{Cc} ~^:?*[\\]{1,255}(?<![/.])$/u;

/** Git speaks https only: other ways would need keys in a sandbox, or lead to the machine itself. */
function isCloneUrl(text: string): boolean {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  return url?.protocol === 'https:' && url.username === '' && url.password === '' && !/[\p{Cc}\s]/u.test(text);
}

const CloneUrl = z
  .string()
  .max(URL_MAX_CHARS)
  .refine(isCloneUrl, "Invalid input: 'content.url' must be an https address without a user name or password");

const Clone = z.strictObject({
  kind: z.literal('clone'),
  url: CloneUrl,
  /** A branch, a tag or a commit; absent: what the host calls its head. */
  ref: z.string().regex(REF, "Invalid input: 'content.ref' is no name of a branch, tag or commit").optional(),
  /** So many commits only. */
  depth: z.number().int().min(1).max(DEPTH_MAX).optional(),
  submodules: z.boolean().default(false),
  lfs: z.boolean().default(false),
});

/** `<workspace>/<n>`, as lists of snapshots show it. */
const SnapshotId = z.string().regex(/^[0-9a-f]{32}\/[1-9]\d{0,8}$/, 'Must be the id of a snapshot');

/** What a workspace begins with, as people ask for it. */
export const ContentSource = z.discriminatedUnion('kind', [
  Clone,
  /** An archive or a file that is sent afterwards. */
  z.strictObject({ kind: z.literal('upload') }),
  /** One that the operator offers, or an archive of the files of a project. */
  z
    .strictObject({
      kind: z.literal('template'),
      name: z.string().min(1).max(128).optional(),
      snapshot: SnapshotId.optional(),
    })
    .refine(
      ({ name, snapshot }) => (name === undefined) !== (snapshot === undefined),
      "Invalid input: 'content' of the kind template needs 'name' or 'snapshot'",
    ),
  z.strictObject({ kind: z.literal('empty') }),
]);
export type ContentSource = z.infer<typeof ContentSource>;

/** How the bytes of an upload are to be read. */
export const UploadFormat = z.enum(['tar', 'tar.gz', 'tar.zst', 'zip', 'file']);
export type UploadFormat = z.infer<typeof UploadFormat>;

/** The same as a sandbox is told it: nothing in it refers to what only others know. */
export const ContentOrder = z.discriminatedUnion('kind', [
  Clone,
  z.strictObject({
    kind: z.literal('unpack'),
    format: UploadFormat,
    bytes: z.number().int().min(0),
    sha256: z.string(),
    /** Of a single file. */
    filename: z.string(),
  }),
  /** Files with these texts, where there are none of their names. */
  z.strictObject({ kind: z.literal('empty'), files: z.record(z.string(), z.string()) }),
]);
export type ContentOrder = z.infer<typeof ContentOrder>;

export const ContentStatus = z.enum(['pending', 'running', 'ready', 'failed']);
export type ContentStatus = z.infer<typeof ContentStatus>;

/** What a workspace begins with, and what became of it. */
export const WorkspaceContent = z.object({
  kind: z.enum(['clone', 'upload', 'template', 'empty']),
  /** As it was asked for; of an upload also what was sent. */
  source: z.record(z.string(), z.unknown()),
  status: ContentStatus,
  /** Of a failure, for machines. */
  reason: z.string().nullable(),
  message: z.string().nullable(),
  /** The commit that was cloned. */
  head: z.string().nullable(),
});

/** A workspace as the public API shows it. */
export const WorkspaceView = z.object({
  /** 32 hex digits. */
  workspace_id: z.string(),
  kind: z.enum(['session', 'project', 'worktree']),
  /** Of the session, project or worktree that it belongs to. */
  belongs_to: z.string(),
  owner: z.string().nullable(),
  class: z.string(),
  storage: z.string(),
  state: z.string(),
  content: WorkspaceContent.nullable(),
  created_at: z.string(),
  last_used_at: z.string(),
  /** When it goes if nobody uses it; null: it stays as long as what it belongs to. */
  expires_at: z.string().nullable(),
  legal_hold: z.boolean(),
  rev: z.number().int(),
});
export type WorkspaceView = z.infer<typeof WorkspaceView>;

/** An archive of a workspace as the public API shows it. */
export const SnapshotView = z.object({
  /** The workspace and the number within it. */
  snapshot_id: z.string(),
  n: z.number().int(),
  kind: z.enum(['full', 'delta']),
  created_at: z.string(),
  bytes: z.number().int(),
  /** Files, folders and links in it. */
  entries: z.number().int(),
  sha256: z.string(),
});
export type SnapshotView = z.infer<typeof SnapshotView>;

/** A sandbox as the public API shows it. */
export const SandboxView = z.object({
  /** 20 hex digits. */
  sandbox_id: z.string(),
  session_id: z.string().nullable(),
  workspace_id: z.string().nullable(),
  class: z.string(),
  driver: z.string(),
  state: z.string(),
  last_active_at: z.string().nullable(),
  reason: z.string().nullable(),
});
export type SandboxView = z.infer<typeof SandboxView>;
