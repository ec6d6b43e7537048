import { attachmentsIn, withAttachments } from './attachments';

const RECORD = {
  id: '0'.repeat(32),
  filename: 'my "notes"\n.md',
  stored_name: '00000000-notes.md',
  content_type: 'text/markdown',
  size_bytes: 12,
  uploaded_at: '',
  parsed: true,
  content_blob: { id: 'a'.repeat(64), bytes: 12, sha256: 'a'.repeat(64) },
};

describe('a message with attached files', () => {
  it('tells the model where they lie, and nothing else where there are none', () => {
    expect(withAttachments('read it', [RECORD])).toBe(
      'read it\n\n[Attached files, read-only. Commands find them in the folder $MARGAY_ATTACHMENTS, too.]\n' +
        '- /margay/attachments/00000000-notes.md ("my \\"notes\\"\\n.md", text/markdown, 12 bytes)',
    );
    expect(withAttachments('hi', [])).toBe('hi');
  });

  it('leaves out what was no upload', () => {
    expect(attachmentsIn([{ name: 'a' }, null, 'x', RECORD])).toEqual([RECORD]);
    expect(withAttachments('hi', [{ $blob: 'x' }])).toBe('hi');
  });
});
