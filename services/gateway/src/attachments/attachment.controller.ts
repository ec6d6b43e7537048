import { Controller } from '@nestjs/common';
import { Attachment } from '@margay/contracts';
import { InvalidArgumentError } from '@margay/errors';
import { z } from 'zod';
import type { Caller } from '../auth/admission';
import { Backends } from '../backends';
import { Answer } from '../http/answer';
import { Operation } from '../http/operation';
import { FromCaller, FromQuery, FromSessionId } from '../http/parameters';
import { FromUpload, type Upload } from '../http/upload';

const UPLOAD_MAX_BYTES = 32 * 1024 * 1024;
const FILES_MAX = 20;

const AttachmentQuery = z.object({ model: z.string().optional().describe('whose model is to read images') });
const Attachments = z.object({ attachments: z.array(Attachment) });

@Controller()
export class AttachmentController {
  constructor(private readonly backends: Backends) {}

  @Operation({
    method: 'POST',
    path: '/api/sessions/{session_id}/attachments',
    summary: 'Upload files (multipart `files`) that a later query can name in `attachments`',
    scope: 'sessions.interact',
    service: 'session',
    family: 'reference',
    errors: 'message',
    hasPlainNotFound: true,
    uploadMaxBytes: UPLOAD_MAX_BYTES,
    query: AttachmentQuery,
    responses: { 200: { description: 'records to pass in `attachments` of a query', schema: Attachments } },
    sample: {
      path: { session_id: '{session_id}' },
      headers: { 'Content-Type': 'multipart/form-data; boundary=x' },
      body: '--x\r\nContent-Disposition: form-data; name="files"; filename="notes.md"\r\n\r\n# Notes\r\n--x--\r\n',
      status: 200,
    },
  })
  async upload(
    @FromCaller() { call }: Caller,
    @FromSessionId() sessionId: string,
    @FromQuery() query: z.infer<typeof AttachmentQuery>,
    @FromUpload() { files, fields }: Upload,
  ): Promise<Answer> {
    if (files.length === 0) throw new InvalidArgumentError('bad_request', "Invalid input: 'files' is required");
    if (files.length > FILES_MAX)
      throw new InvalidArgumentError('bad_request', `Invalid input: 'files': at most ${FILES_MAX} at once`);
    const model = fields['model'] ?? query.model ?? '';
    const attachments: unknown[] = [];
    for (const { name, contentType, content } of files) {
      const request = { sessionId, filename: name, contentType, content, model };
      const { attachmentJson } = await this.backends.sessions.addAttachment(request, call);
      attachments.push(JSON.parse(attachmentJson));
    }
    return new Answer(200, { attachments });
  }
}
