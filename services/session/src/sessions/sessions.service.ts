import { isoMicros, USUAL_SANDBOX_CLASS, type Principal, type sessionsPb } from '@margay/contracts';
import { NotFoundError } from '@margay/errors';
import { faultPoint } from '@margay/platform';
import {
  commitKey,
  decide,
  isRejected,
  type CommitOutcome,
  type CreateCommand,
  type Head,
  type RunRequest,
} from '@margay/log';
import { mayAccess, requireAccess, requireDriver } from '../access/access-rules';
import type { AttachmentsService } from '../attachments/attachments.service';
import { rejectionError, type SessionLog } from '../commits/session-log';
import type { EffectsService } from '../effects/effects.service';
import type { SandboxClasses } from '../projects/sandbox-classes';
import { parseWorktreeId } from '../projects/worktree-id';
import { commitIdOf, newSessionId } from './request-ids';
import {
  ANY_RUN,
  boundContext,
  parseContext,
  runRequest,
  textOf,
  type RunRequestPorts,
  type WantedRun,
} from './run-request';
import type { TagRepository } from './tag.repository';

/** A cancel waits so long for its sandbox to be fenced before it is answered. */
const FENCE_WAIT_MS = 1_000;
/** A run is looked at so often where its session moves on each time. */
const START_ATTEMPTS = 5;
/** That no head has. */
const NO_EPOCH = -1;

export interface SessionsPorts extends RunRequestPorts {
  log: SessionLog;
  effects: EffectsService;
  tags: TagRepository;
  attachments: Pick<AttachmentsService, 'resolve'>;
  classes: Pick<SandboxClasses, 'of' | 'require'>;
}

/** What people do to sessions: each method is one command on the log. */
export class SessionsService {
  constructor(private readonly ports: SessionsPorts) {}

  async create(
    principal: Principal,
    request: sessionsPb.CreateSessionRequest,
  ): Promise<sessionsPb.CreateSessionResponse> {
    requireDriver(principal, 'sessions.create');
    const sessionId = newSessionId(principal, request.idempotencyKey);
    const command = await this.ports.log.mask(sessionId, await this.createCommand(principal, sessionId, request));
    // With a key the id is that of the first request: what it made is found before the tag, which may be another one.
    const isRepeat = request.idempotencyKey !== '' && (await this.ports.log.recentHead(sessionId)).c > 0;
    if (request.sessionTag !== '' && !isRepeat) return this.createTagged(principal, command, sessionId);
    const outcome = await this.ports.log.commit(sessionId, command);
    return { sessionId, created: true, replayed: isReplay(outcome, command.commitId) };
  }

  async accept(principal: Principal, request: sessionsPb.AcceptRunRequest): Promise<sessionsPb.AcceptRunResponse> {
    const { sessionId, idempotencyKey } = request;
    const head = await this.drivenHead(principal, sessionId);
    const commitId = commitIdOf(principal, sessionId, 'query', idempotencyKey);
    const outcome = await this.started(principal, head, request, { kind: 'accept', commitId });
    await faultPoint('session.before-accepted', () => `${sessionId} ${request.text}`);
    if (outcome.replayed) void this.ports.effects.redo(sessionId, outcome.c);
    return { runId: String(outcome.answer['run_id']), replayed: isReplay(outcome, commitId) };
  }

  async message(principal: Principal, request: sessionsPb.SendMessageRequest): Promise<sessionsPb.SendMessageResponse> {
    const { sessionId, idempotencyKey } = request;
    const head = await this.drivenHead(principal, sessionId);
    const wanted = { ...request, mode: '', project: '', cwd: '', contextJson: '', attachmentsJson: '' };
    const commitId = commitIdOf(principal, sessionId, 'message', idempotencyKey);
    const outcome = await this.started(principal, head, wanted, { kind: 'message', commitId });
    if (outcome.replayed) void this.ports.effects.redo(sessionId, outcome.c);
    const { steered, run_id: runId } = outcome.answer;
    return {
      steered: steered === true,
      runId: steered === true ? '' : String(runId),
      replayed: isReplay(outcome, commitId),
    };
  }

  async interrupt(
    principal: Principal,
    { sessionId, idempotencyKey }: sessionsPb.InterruptRunRequest,
  ): Promise<sessionsPb.InterruptRunResponse> {
    await this.drivenHead(principal, sessionId);
    const commitId = commitIdOf(principal, sessionId, 'interrupt', idempotencyKey);
    const outcome = await this.ports.log.submit(sessionId, { kind: 'interrupt', commitId });
    return { interrupted: isDone(outcome), replayed: outcome.ok && isReplay(outcome, commitId) };
  }

  async cancel(
    principal: Principal,
    { sessionId, idempotencyKey }: sessionsPb.CancelRunRequest,
  ): Promise<sessionsPb.CancelRunResponse> {
    await this.drivenHead(principal, sessionId);
    const commitId = commitIdOf(principal, sessionId, 'cancel', idempotencyKey);
    const outcome = await this.ports.log.submit(sessionId, { kind: 'cancel', commitId });
    if (outcome.ok) await this.fenced(sessionId, outcome.c);
    return { canceled: isDone(outcome), replayed: outcome.ok && isReplay(outcome, commitId) };
  }

  /** Irreversible; a repeat answers what the first one did. */
  async terminate(principal: Principal, sessionId: string): Promise<sessionsPb.TerminateSessionResponse> {
    await this.drivenHead(principal, sessionId);
    const commitId = commitIdOf(principal, sessionId, 'terminate', '');
    const outcome = await this.ports.log.submit(sessionId, { kind: 'terminate', commitId, cancelledTriggers: 0 });
    if (outcome.ok) await this.fenced(sessionId, outcome.c);
    const { terminated } = outcome.head;
    if (!terminated) throw outcome.ok ? new Error('terminated head expected') : rejectionError(outcome.rejection);
    return { terminatedAt: isoMicros(terminated.ts), cancelledTriggers: terminated.cancelledTriggers };
  }

  /** The confirmed present head. @throws NotFoundError `session_not_found`, also for foreign sessions */
  async confirmedHead(principal: Principal, sessionId: string): Promise<Head> {
    const { head } = await this.ports.log.confirmedTip(sessionId);
    requireAccess(principal, head);
    return head;
  }

  /** The present head of the session with this tag; undefined for tags of others, too. */
  async findTagged(principal: Principal, tag: string): Promise<Head | undefined> {
    const row = await this.ports.tags.find(principal.tenantId, tag);
    if (!row) return undefined;
    const { head } = await this.ports.log.confirmedTip(row.sessionId);
    return head.c > 0 && mayAccess(principal, head) ? head : undefined;
  }

  /** A recent head of a session that this principal may drive. */
  private async drivenHead(principal: Principal, sessionId: string): Promise<Head> {
    const head = await this.ports.log.recentHead(sessionId);
    requireAccess(principal, head);
    requireDriver(principal, 'sessions.interact');
    return head;
  }

  /** Commits the run that a request means; looked at anew where the session has moved on meanwhile. */
  private async started(
    principal: Principal,
    head: Head,
    wanted: WantedRun,
    command: { kind: 'accept' | 'message'; commitId: string },
  ): Promise<CommitOutcome & { ok: true }> {
    const { log } = this.ports;
    const { sessionId, tenantId } = head;
    for (let attempt = 1, seen = head; ; attempt += 1) {
      const run = await this.wantedRun(principal, seen, wanted, command.kind);
      const outcome = await log.submit(sessionId, await log.fit(sessionId, tenantId, { ...command, run }));
      if (outcome.ok) return outcome;
      if (outcome.rejection.reason !== 'changed' || attempt === START_ATTEMPTS) throw rejectionError(outcome.rejection);
      seen = outcome.head;
    }
  }

  /**
   * The run that a request means. Its faults come second: of a session that is terminated or busy that is what is said,
   * and a head that was not recent enough is no reason to refuse.
   */
  private async wantedRun(
    principal: Principal,
    head: Head,
    wanted: WantedRun,
    kind: 'accept' | 'message',
  ): Promise<RunRequest> {
    try {
      return await this.resolvedRun(principal, head, wanted);
    } catch {
      const { head: present } = await this.ports.log.confirmedTip(head.sessionId);
      const decision = decide(present, { kind, commitId: '', run: ANY_RUN }, present.ts + 1);
      if (isRejected(decision)) throw rejectionError(decision.reject);
      return kind === 'message' && present.run
        ? this.wordToRun(principal, present, wanted)
        : this.resolvedRun(principal, present, wanted);
    }
  }

  /** A message to the run that there is. What a new one may have is no matter, so it starts none where that one has ended. */
  private async wordToRun(principal: Principal, head: Head, wanted: WantedRun): Promise<RunRequest> {
    const run = await this.resolvedRun(principal, head, wanted, { of: async () => USUAL_SANDBOX_CLASS });
    return { ...run, seen: { binding: head.binding, epoch: NO_EPOCH } };
  }

  private async resolvedRun(
    principal: Principal,
    head: Head,
    wanted: WantedRun,
    classes: RunRequestPorts['classes'] = this.ports.classes,
  ): Promise<RunRequest> {
    const run = await runRequest({ ...this.ports, classes }, principal, head, wanted);
    return { ...run, attachments: await this.ports.attachments.resolve(principal, run.attachments) };
  }

  /** Waits a moment for what a cancel owes to the sandbox: nothing of the run is to be alive when it is answered. */
  private async fenced(sessionId: string, c: number): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, FENCE_WAIT_MS);
    });
    await Promise.race([this.ports.effects.settled(commitKey(sessionId, c)), late]);
    clearTimeout(timer);
  }

  private async createTagged(
    principal: Principal,
    command: CreateCommand,
    sessionId: string,
  ): Promise<sessionsPb.CreateSessionResponse> {
    const tag = command.tag ?? '';
    const row = await this.ports.tags.reserve(principal.tenantId, tag, sessionId, command);
    const head = await this.taggedHead(row.sessionId, JSON.parse(row.commandJson) as CreateCommand);
    // Whose it is otherwise is nobody's business, nor its id.
    if (!mayAccess(principal, head)) throw new NotFoundError('session_not_found', `session tagged '${tag}' not found`);
    return { sessionId: row.sessionId, created: row.sessionId === sessionId, replayed: false };
  }

  /** Head of a tagged session, whose first commit is written if whoever reserved the tag did not come to it. */
  private async taggedHead(sessionId: string, first: CreateCommand): Promise<Head> {
    const { log } = this.ports;
    const known = await log.recentHead(sessionId);
    if (known.c > 0) return known;
    const outcome = await log.submit(sessionId, first);
    if (!outcome.ok && outcome.rejection.reason !== 'session_exists') throw rejectionError(outcome.rejection);
    return outcome.head;
  }

  private async createCommand(
    principal: Principal,
    sessionId: string,
    request: sessionsPb.CreateSessionRequest,
  ): Promise<CreateCommand> {
    const { project: contextProject, cwd: contextCwd, ...context } = parseContext(request.contextJson);
    const cwd = request.cwd || textOf(contextCwd);
    const named = request.project || textOf(contextProject);
    // Unknown names bind to nothing here; they fail when a run is to start.
    const { projects } = this.ports;
    const { tenantId } = principal;
    const sandboxClass = textOf(context['sandbox_class']);
    if (sandboxClass !== '') await this.ports.classes.require(tenantId, sandboxClass);
    const binding = await projects.bind(tenantId, (await projects.find(tenantId, named)) ?? '', cwd);
    const isWorktree = binding.project !== null && parseWorktreeId(binding.project) !== undefined;
    const repository = isWorktree ? await projects.repositoryOf(tenantId, binding.project ?? '') : {};
    return {
      kind: 'create',
      commitId:
        request.idempotencyKey === ''
          ? `create:${sessionId}`
          : commitIdOf(principal, sessionId, 'create', request.idempotencyKey),
      tenantId: principal.tenantId,
      owner: principal.principal,
      tag: request.sessionTag || null,
      binding,
      context: {
        ...context,
        model: textOf(context['model']) || (this.ports.models.defaultModel ?? ''),
        ...(request.mode ? { mode: request.mode } : {}),
        ...(named === '' || named === 'auto' || cwd !== '' ? {} : { project: named }),
        ...boundContext(binding),
        ...repository,
        ...(request.hasCapabilities ? { client_capabilities: request.capabilities } : {}),
        ...(request.surface ? { surface: request.surface } : {}),
      },
    };
  }
}

function isDone(outcome: CommitOutcome): boolean {
  if (outcome.ok) return true;
  if (outcome.rejection.reason === 'no_active_run') return false;
  throw rejectionError(outcome.rejection);
}

/** Whether the command was answered from a commit that an earlier request had written. */
function isReplay(outcome: CommitOutcome & { ok: true }, commitId: string): boolean {
  return outcome.replayed && commitId.startsWith('ik:');
}
