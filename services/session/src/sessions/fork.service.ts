import { parseMicros, type Principal, type sessionsPb } from '@margay/contracts';
import { AbortedError, AlreadyExistsError, FailedPreconditionError, InvalidArgumentError } from '@margay/errors';
import {
  canonicalJson,
  isHalfMade,
  sha256Hex,
  type CommitDocument,
  type ForkPlan,
  type Head,
  type LogClock,
} from '@margay/log';
import type { Logger } from '@margay/platform';
import { requireAccess, requireDriver } from '../access/access-rules';
import type { SessionLog } from '../commits/session-log';
import type { EffectsService } from '../effects/effects.service';
import type { SessionRepository } from '../effects/session.repository';
import { writeForkLog } from './fork-log';
import type { ForkRepository, ForkRow } from './fork.repository';
import { commitIdOf, newSessionId } from './request-ids';
import type { ForkedFiles } from '../workspaces/forked-files';
import type { TagRepository } from './tag.repository';

export interface ForkPorts {
  log: SessionLog;
  effects: EffectsService;
  sessions: SessionRepository;
  tags: TagRepository;
  forks: ForkRepository;
  files: Pick<ForkedFiles, 'copy'>;
  logger: Logger;
  clock: Pick<LogClock, 'nowMicros'>;
}

interface Command {
  commitId: string;
  bodyHash: string;
}

/**
 * New sessions from old ones. A fork is planned, written commit by commit, and becomes visible by its row, at last. Whoever
 * dies on the way leaves a plan from which a repeat goes on; what nobody repeats is removed.
 */
export class ForkService {
  constructor(private readonly ports: ForkPorts) {}

  async fork(principal: Principal, request: sessionsPb.ForkSessionRequest): Promise<sessionsPb.ForkSessionResponse> {
    const { log, forks } = this.ports;
    const { head } = await log.confirmedTip(request.sessionId);
    requireAccess(principal, head);
    requireDriver(principal, 'sessions.create');
    log.requireWritable();
    const { sessionId: _source, idempotencyKey, ...body } = request;
    const command = {
      commitId: commitIdOf(principal, head.sessionId, 'fork', idempotencyKey),
      bodyHash: sha256Hex(canonicalJson({ kind: 'fork', source: head.sessionId, ...body })),
    };
    const sessionId = newSessionId(principal, idempotencyKey === '' ? '' : `fork ${head.sessionId} ${idempotencyKey}`);
    if (idempotencyKey === '') return this.begin(principal, head, { sessionId, command, request });
    // A plan goes only after its fork is stored: looked for in this order, one of them is found.
    const begun = await forks.find(sessionId);
    const stored = await this.find(sessionId, command);
    if (stored) return answerOf(await this.complete(stored), true);
    if (begun) return answerOf(await this.make(begun, command, head), false);
    return this.begin(principal, head, { sessionId, command, request });
  }

  private async begin(
    principal: Principal,
    head: Head,
    { sessionId, command, request }: { sessionId: string; command: Command; request: sessionsPb.ForkSessionRequest },
  ): Promise<sessionsPb.ForkSessionResponse> {
    const row = await this.ports.forks.begin(await this.plan(principal, head, sessionId, request), command);
    // Since we looked another replica may have made it whole, of the source as it was then: its plan is gone, ours is new.
    const made = request.idempotencyKey === '' ? undefined : await this.find(sessionId, command);
    if (made) return answerOf(await this.complete(made), true);
    return answerOf(await this.make(row, command, head), false);
  }

  /** Makes a written fork a session: its row, its tag, and no trace of its making. Safe to repeat. */
  async complete(last: CommitDocument): Promise<CommitDocument> {
    const { effects, sessions, tags, forks } = this.ports;
    const { sessionId, tenantId, head } = last;
    await effects.apply(last);
    if ((await sessions.find(sessionId))?.isDead) throw abandoned();
    if (head.tag !== null) await tags.settleFork(tenantId, head.tag, sessionId);
    await forks.remove(sessionId);
    return last;
  }

  private async make(row: ForkRow, command: Command, source: Head): Promise<CommitDocument> {
    if (row.bodyHash !== command.bodyHash) throw keyReused();
    if (row.isDead) throw abandoned();
    const plan = JSON.parse(row.planJson) as ForkPlan;
    if (plan.tag !== null) await this.reserveTag(plan, plan.tag);
    const { log, logger, clock, files } = this.ports;
    // Those of projects are shared, and nobody who never ran has any.
    const { project, cwd } = source.binding;
    if (project === null && cwd === null && source.runNo > 0) await files.copy(plan);
    return this.complete(await writeForkLog({ store: log.writes, logger, clock }, plan, row));
  }

  private async reserveTag({ tenantId, sessionId }: ForkPlan, tag: string): Promise<void> {
    const holder = await this.ports.tags.reserveForFork(tenantId, tag, sessionId);
    if (holder.sessionId === sessionId) return;
    // A repeat may name another tag.
    await this.ports.forks.remove(sessionId);
    throw new AlreadyExistsError('tag_taken', `The tag '${tag}' belongs to another session.`);
  }

  /** The last commit of a fork that an earlier request with this key has made. */
  private async find(sessionId: string, { commitId, bodyHash }: Command): Promise<CommitDocument | undefined> {
    const stored = await this.ports.log.store.findByCommitId(sessionId, commitId, { linearizable: true });
    const known = stored?.commands.find((command) => command.commitId === commitId);
    if (known && known.bodyHash !== bodyHash) throw keyReused();
    return stored;
  }

  private async plan(
    principal: Principal,
    head: Head,
    sessionId: string,
    request: sessionsPb.ForkSessionRequest,
  ): Promise<ForkPlan> {
    if (head.terminated) throw new FailedPreconditionError('session_terminated', 'Session is permanently terminated');
    if (head.run) throw new AbortedError('session_running', 'Cannot fork a running session.');
    if (request.compact)
      throw new InvalidArgumentError('compaction_unavailable', "'compact' is not supported yet: fork without it.");
    const point = request.fromTs === '' ? undefined : await this.pointAt(head, request.fromTs);
    return {
      sessionId,
      tenantId: head.tenantId,
      owner: principal.principal,
      tag: request.tag || null,
      title: head.title,
      model: request.model || null,
      source: { sessionId: head.sessionId, c: point?.c ?? head.c, ts: point?.ts ?? head.ts, cuts: head.cuts },
      forkedAtTs: point?.ts ?? null,
    };
  }

  /** The event with this time that readers see. */
  private async pointAt({ sessionId, cuts }: Head, fromTs: string): Promise<{ c: number; ts: number }> {
    const ts = parseMicros(fromTs);
    const { store } = this.ports.log;
    const c = ts === undefined ? 0 : await store.findNumberByTs(sessionId, ts);
    const document = c > 0 ? await store.readNumber(sessionId, c) : undefined;
    const event = document?.events.find((each) => each.ts === ts);
    if (!event || cuts.some(([from, to]) => from <= event.seq && event.seq <= to))
      throw new InvalidArgumentError('event_not_found', "'from_ts' matches no event of this session.");
    return { c, ts: event.ts };
  }
}

function answerOf({ sessionId, head, commands }: CommitDocument, replayed: boolean): sessionsPb.ForkSessionResponse {
  if (isHalfMade(head)) throw new Error('the last commit of a fork expected');
  const forkedAt = commands[0]?.answer['forked_at'];
  return { sessionId, forkedAt: typeof forkedAt === 'string' ? forkedAt : '', replayed };
}

function abandoned(): Error {
  const message = 'The fork took too long and was given up; fork again, with another Idempotency-Key if there was one.';
  return new AbortedError('fork_abandoned', message);
}

function keyReused(): Error {
  return new AlreadyExistsError('idempotency_key_reused', 'this key was used with another body');
}
