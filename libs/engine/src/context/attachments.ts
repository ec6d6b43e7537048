import { Attachment } from '@margay/contracts';

/** Where sandboxes show what people attached. */
const FOLDER = '/margay/attachments';

/** What people attached, of what a record names; things of another shape were no uploads. */
export function attachmentsIn(listed: readonly unknown[]): Attachment[] {
  return listed.flatMap((item) => {
    const parsed = Attachment.safeParse(item);
    return parsed.success ? [parsed.data] : [];
  });
}

/** The words of a person with the files that came with them. The files stay where they are: the model reads what it needs. */
export function withAttachments(text: string, listed: readonly unknown[]): string {
  const attachments = attachmentsIn(listed);
  if (attachments.length === 0) return text;
  const lines = attachments.map(
    ({ filename, stored_name: name, content_type: type, size_bytes: bytes }) =>
      `- ${FOLDER}/${name} (${JSON.stringify(filename)}, ${type}, ${bytes} bytes)`,
  );
  return `${text}\n\n[Attached files, read-only. Commands find them in the folder $MARGAY_ATTACHMENTS, too.]\n${lines.join('\n')}`;
}
