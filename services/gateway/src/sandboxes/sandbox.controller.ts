import { Controller, Param } from '@nestjs/common';
import { SandboxView } from '@margay/contracts';
import { isMargayError, NotFoundError } from '@margay/errors';
import { z } from 'zod';
import type { Caller } from '../auth/admission';
import { Backends } from '../backends';
import { Answer } from '../http/answer';
import { Operation } from '../http/operation';
import { FromCaller } from '../http/parameters';

const OF_SANDBOXES = { service: 'tool-executor', family: 'margay', errors: 'envelope' } as const;
const PATH = '/api/sandboxes/{sandbox_id}';
const SAMPLE = { path: { sandbox_id: '{sandbox_id}' } };
/** Sessions asked about in one call. */
const AT_ONCE = 500;

const Sandboxes = z.object({ sandboxes: z.array(SandboxView) });

/** Sandboxes as they live: tool-executor knows them, and session whose they are. */
@Controller()
export class SandboxController {
  constructor(private readonly backends: Backends) {}

  @Operation({
    ...OF_SANDBOXES,
    method: 'GET',
    path: '/api/sandboxes',
    summary: 'Sandboxes that live, of the sessions that you may see',
    scope: 'sessions.read',
    responses: { 200: { description: 'the sandboxes, those used last first', schema: Sandboxes } },
    sample: { status: 200 },
  })
  async list(@FromCaller() { call }: Caller): Promise<Answer> {
    const { sandboxesJson } = await this.backends.workspaces.listSandboxes({}, call);
    const all = sandboxesJson.map((json) => JSON.parse(json) as SandboxView);
    const seen = await this.seenOf([...new Set(all.flatMap((sandbox) => sandbox.session_id ?? []))], call);
    const sandboxes = all.filter(({ session_id: sessionId }) => sessionId !== null && seen.has(sessionId));
    return new Answer(200, { sandboxes });
  }

  @Operation({
    ...OF_SANDBOXES,
    method: 'GET',
    path: PATH,
    summary: 'A sandbox, also one that ended lately',
    scope: 'sessions.read',
    responses: { 200: { description: 'the sandbox', schema: SandboxView } },
    sample: { ...SAMPLE, status: 200 },
  })
  async get(@FromCaller() { call }: Caller, @Param('sandbox_id') sandboxId: string): Promise<Answer> {
    const { sandboxJson } = await this.backends.workspaces.getSandbox({ sandboxId }, call);
    if (await this.maySee(JSON.parse(sandboxJson) as SandboxView, call)) return Answer.json(sandboxJson);
    throw new NotFoundError('sandbox_not_found', `sandbox ${sandboxId.slice(0, 64)} not found`);
  }

  @Operation({
    ...OF_SANDBOXES,
    method: 'DELETE',
    path: PATH,
    summary: 'End a sandbox; what runs in it is lost, its workspace stays',
    scope: 'sessions.admin',
    responses: { 204: { description: 'it has ended' } },
    sample: { ...SAMPLE, status: 204 },
  })
  async end(@FromCaller() { call }: Caller, @Param('sandbox_id') sandboxId: string): Promise<Answer> {
    await this.backends.workspaces.endSandbox({ sandboxId }, call);
    return new Answer(204, undefined);
  }

  /** Those of the sessions that the caller may see. */
  private async seenOf(sessionIds: string[], call: Caller['call']): Promise<Set<string>> {
    const seen = new Set<string>();
    for (let at = 0; at < sessionIds.length; at += AT_ONCE) {
      const some = sessionIds.slice(at, at + AT_ONCE);
      const asked = { includeArchived: true, projects: [], sessionIds: some, offset: 0 };
      const { summariesJson } = await this.backends.sessions.listSessions(asked, call);
      for (const json of summariesJson) seen.add((JSON.parse(json) as { session_id: string }).session_id);
    }
    return seen;
  }

  private async maySee({ session_id: sessionId }: SandboxView, call: Caller['call']): Promise<boolean> {
    if (sessionId === null) return false;
    try {
      await this.backends.sessions.getSession({ sessionId }, call);
      return true;
    } catch (error) {
      if (isMargayError(error) && error.code === 'NOT_FOUND') return false;
      throw error;
    }
  }
}
