import { z } from 'zod';

/** A file that people attached to a session, as the public API shows it and events keep it. */
export const Attachment = z.object({
  /** 32 hex digits. */
  id: z.string(),
  /** As it was called where it came from. */
  filename: z.string(),
  /** Its name in sandboxes, below `/margay/attachments`. */
  stored_name: z.string(),
  content_type: z.string(),
  size_bytes: z.number().int(),
  uploaded_at: z.string(),
  /** It is text. */
  parsed: z.boolean(),
  /** Where the bytes lie: `GET /api/sessions/{id}/blobs/{blob}`. */
  content_blob: z.object({ id: z.string(), bytes: z.number().int(), sha256: z.string() }),
});
export type Attachment = z.infer<typeof Attachment>;
