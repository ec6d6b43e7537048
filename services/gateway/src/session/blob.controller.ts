import { Controller, Headers, Param } from '@nestjs/common';
import { z } from 'zod';
import type { Caller } from '../auth/admission';
import type { Answer } from '../http/answer';
import { Operation } from '../http/operation';
import { FromCaller, FromSessionId } from '../http/parameters';
import { BlobService } from './blob.service';
import { parseRange } from './byte-range';

@Controller()
export class BlobController {
  constructor(private readonly blobs: BlobService) {}

  @Operation({
    method: 'GET',
    path: '/api/sessions/{session_id}/blobs/{blob_id}',
    summary: 'A long text that an event only previews',
    scope: 'sessions.read',
    ticket: 'blob',
    service: 'session',
    family: 'margay',
    errors: 'envelope',
    query: z.object({ ticket: z.string().optional().describe('instead of a key; purpose `blob`') }),
    headers: z.object({ Range: z.string().optional().describe('one range of bytes') }),
    responses: {
      200: { description: 'the whole text', contentType: 'text/plain' },
      206: { description: 'a part of it', contentType: 'text/plain' },
    },
    sample: {
      path: { session_id: '{session_id}', blob_id: '{blob_id}' },
      headers: { Range: 'bytes=0-99' },
      status: 206,
    },
  })
  read(
    @FromCaller() caller: Caller,
    @FromSessionId() sessionId: string,
    @Param('blob_id') blobId: string,
    @Headers('range') range: string | undefined,
  ): Promise<Answer> {
    return this.blobs.read(caller, sessionId, blobId, parseRange(range));
  }
}
