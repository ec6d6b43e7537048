import { TicketPurpose } from '@margay/contracts';
import { Controller } from '@nestjs/common';
import { z } from 'zod';
import { Answer } from '../http/answer';
import { Operation } from '../http/operation';
import { FromBody, FromCaller } from '../http/parameters';
import type { Caller } from './admission';
import { Tickets } from './tickets';

const SESSIONS_MAX = 100;

const TicketBody = z.strictObject({
  purpose: TicketPurpose.describe('what it opens; `terminal` and `ide` are not served yet'),
  session_ids: z
    .array(z.string().regex(/^[0-9a-f]{32}$/, "'session_ids' must be ids of sessions"))
    .min(1)
    .max(SESSIONS_MAX)
    .optional()
    .describe('sessions it is good for; absent: all that the key may read'),
  user: z.boolean().optional().describe("true: also good for the user's own feed"),
});
type TicketBody = z.infer<typeof TicketBody>;

const Issued = z.object({ ticket: z.string(), expires_at: z.string() });

@Controller()
export class TicketController {
  constructor(private readonly tickets: Tickets) {}

  @Operation({
    method: 'POST',
    path: '/api/tickets',
    summary: 'A short-lived stand-in for the key, for links that cannot carry a header',
    scope: 'sessions.read',
    service: 'gateway',
    family: 'margay',
    errors: 'envelope',
    body: TicketBody,
    responses: { 201: { description: 'to be sent as `?ticket=`; good for less than a minute', schema: Issued } },
    sample: { body: { purpose: 'stream', session_ids: ['0f8fad5bd9cb469fa165708677289501'] }, status: 201 },
  })
  async issue(@FromCaller() caller: Caller, @FromBody() body: TicketBody): Promise<Answer> {
    const { purpose, session_ids: sessionIds, user = false } = body;
    const { ticket, expiresAt } = await this.tickets.issue(caller, { purpose, sessionIds, user });
    return new Answer(201, { ticket, expires_at: expiresAt }, { 'cache-control': 'no-store' });
  }
}
