import type { Principal, sessionsPb } from '@margay/contracts';
import { isoMicros } from '@margay/contracts';
import { InvalidArgumentError, UnavailableError } from '@margay/errors';
import {
  canonicalJson,
  commitKey,
  sha256Hex,
  type CommitOutcome,
  type CreateCommand,
  type Head,
  type RunOptions,
  type RunRequest,
} from '@margay/log';
import { currentTraceparent } from '@margay/platform';
import { requireAccess } from '../access/access-rules';
import { rejectionError, type SessionLog } from '../commits/session-log';
import type { EffectsService } from '../effects/effects.service';
import type { ModelsService } from '../projects/models.service';
import type { Binding, ProjectsService } from '../projects/projects.service';
import { commitIdOf, newSessionId } from './request-ids';
import type { TagRepository } from './tag.repository';

export const ENGINE_VERSION = '1';
/** A cancel waits so long for its sandbox to be fenced before it is answered. */
const FENCE_WAIT_MS = 1_000;

export interface SessionsPorts {
  log: SessionLog;
  effects: EffectsService;
  tags: TagRepository;
  projects: ProjectsService;
  models: ModelsService;
  pool: string;
  stepBudget: number;
}

/** What people do to sessions: each method is one command on the log. */
export class SessionsService {
  constructor(private readonly ports: SessionsPorts) {}

  async create(
    principal: Principal,
    request: sessionsPb.CreateSessionRequest,
  ): Promise<sessionsPb.CreateSessionResponse> {
    const sessionId = newSessionId(principal, request.idempotencyKey);
    const command = await this.createCommand(principal, sessionId, request);
    if (request.sessionTag !== '') return this.createTagged(principal, command, sessionId);
    const outcome = await this.ports.log.commit(sessionId, command);
    return { sessionId, created: true, replayed: isReplay(outcome, command.commitId) };
  }

  async accept(principal: Principal, request: sessionsPb.AcceptRunRequest): Promise<sessionsPb.AcceptRunResponse> {
    const head = await this.head(principal, request.sessionId);
    const run = await this.runRequest(principal, head, request);
    const commitId = commitIdOf(principal, request.sessionId, 'query', request.idempotencyKey);
    const outcome = await this.ports.log.commit(request.sessionId, { kind: 'accept', commitId, run });
    return { runId: String(outcome.answer['run_id']), replayed: isReplay(outcome, commitId) };
  }

  async message(principal: Principal, request: sessionsPb.SendMessageRequest): Promise<sessionsPb.SendMessageResponse> {
    const head = await this.head(principal, request.sessionId);
    const run = await this.runRequest(principal, head, {
      ...request,
      mode: '',
      project: '',
      cwd: '',
      contextJson: '',
      attachmentsJson: '',
    });
    const commitId = commitIdOf(principal, request.sessionId, 'message', request.idempotencyKey);
    const outcome = await this.ports.log.commit(request.sessionId, { kind: 'message', commitId, run });
    const { steered, run_id: runId } = outcome.answer;
    return {
      steered: steered === true,
      runId: steered === true ? '' : String(runId),
      replayed: isReplay(outcome, commitId),
    };
  }

  async interrupt(principal: Principal, sessionId: string): Promise<boolean> {
    await this.head(principal, sessionId);
    const commitId = commitIdOf(principal, sessionId, 'interrupt', '');
    return isDone(await this.ports.log.submit(sessionId, { kind: 'interrupt', commitId }));
  }

  async cancel(principal: Principal, sessionId: string): Promise<boolean> {
    await this.head(principal, sessionId);
    const commitId = commitIdOf(principal, sessionId, 'cancel', '');
    const outcome = await this.ports.log.submit(sessionId, { kind: 'cancel', commitId });
    if (outcome.ok) await this.fenced(sessionId, outcome.c);
    return isDone(outcome);
  }

  /** Irreversible; a repeat answers what the first one did. */
  async terminate(principal: Principal, sessionId: string): Promise<sessionsPb.TerminateSessionResponse> {
    await this.head(principal, sessionId);
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

  private async head(principal: Principal, sessionId: string): Promise<Head> {
    const head = await this.ports.log.recentHead(sessionId);
    requireAccess(principal, head);
    return head;
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
    const first = JSON.parse(row.commandJson) as CreateCommand;
    const outcome = await this.ports.log.submit(row.sessionId, first);
    if (!outcome.ok && outcome.rejection.reason !== 'session_exists') throw rejectionError(outcome.rejection);
    requireAccess(principal, outcome.head);
    return { sessionId: row.sessionId, created: row.sessionId === sessionId, replayed: false };
  }

  private async createCommand(
    principal: Principal,
    sessionId: string,
    request: sessionsPb.CreateSessionRequest,
  ): Promise<CreateCommand> {
    const given = parseContext(request.contextJson);
    const { cwd: contextCwd, ...context } = given;
    const cwd = request.cwd || (typeof contextCwd === 'string' ? contextCwd : '');
    const named = request.project || text(given['project']);
    // Unknown names are ignored here; they fail when a run is to start.
    const project = this.ports.projects.has(named) ? named : '';
    const binding = await this.ports.projects.bind(project, cwd);
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
        model: text(given['model']) || (this.ports.models.defaultModel ?? ''),
        ...(request.mode ? { mode: request.mode } : {}),
        ...(binding.project === null ? {} : { project: binding.project }),
        ...(binding.cwd === null ? {} : { cwd: binding.cwd }),
        ...(request.hasCapabilities ? { client_capabilities: request.capabilities } : {}),
        ...(request.surface ? { surface: request.surface } : {}),
      },
    };
  }

  private async runRequest(
    principal: Principal,
    head: Head,
    request: Omit<sessionsPb.AcceptRunRequest, 'sessionId' | 'idempotencyKey'>,
  ): Promise<RunRequest> {
    const given = parseContext(request.contextJson);
    const merged = { ...head.context, ...given };
    const model = text(merged['model']) || this.ports.models.defaultModel;
    if (!model)
      throw new UnavailableError('models_not_ready', 'no model is configured: set MARGAY_MODEL and the provider of it');
    const binding = await this.bindingFor(head, request, given);
    const mode = (request.mode || text(merged['mode'])) === 'plan' ? 'plan' : 'act';
    const granted = request.hasCapabilities ? request.capabilities : texts(merged['client_capabilities']);
    const options: RunOptions = {
      model,
      fallbackModels: texts(merged['fallback_models']),
      mode,
      mcpTools: Array.isArray(merged['mcp_tools']) ? texts(merged['mcp_tools']) : null,
      capabilities: granted,
      stepBudget: this.ports.stepBudget,
      engineVersion: ENGINE_VERSION,
    };
    const traceparent = currentTraceparent();
    return {
      text: request.text,
      context: {
        ...given,
        model,
        mode,
        ...(binding.project === null ? {} : { project: binding.project }),
        ...(request.hasCapabilities ? { client_capabilities: granted } : {}),
        ...(request.surface ? { surface: request.surface } : {}),
      },
      binding,
      attachments: parseAttachments(request.attachmentsJson),
      principal: principal.principal,
      pool: this.ports.pool,
      options,
      requestHash: requestHash(request),
      ...(traceparent === undefined ? {} : { traceparent }),
    };
  }

  /** Project and folder can be set only while the session has none; later values are ignored. */
  private async bindingFor(
    head: Head,
    request: { project: string; cwd: string },
    context: Record<string, unknown>,
  ): Promise<Binding> {
    const isBound = head.binding.project !== null || head.binding.cwd !== null;
    if (isBound) return head.binding;
    return this.ports.projects.bind(request.project || text(context['project']), request.cwd || text(context['cwd']));
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

function requestHash(request: Omit<sessionsPb.AcceptRunRequest, 'sessionId' | 'idempotencyKey'>): string {
  const { text: said, mode, project, cwd, contextJson, attachmentsJson } = request;
  return sha256Hex(canonicalJson({ said, mode, project, cwd, contextJson, attachmentsJson }));
}

function parseContext(json: string): Record<string, unknown> {
  if (json === '') return {};
  const value: unknown = JSON.parse(json);
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new InvalidArgumentError('invalid_context', "'context' must be a JSON object");
  return value as Record<string, unknown>;
}

function parseAttachments(json: string): unknown[] {
  if (json === '') return [];
  const value: unknown = JSON.parse(json);
  if (!Array.isArray(value)) throw new InvalidArgumentError('invalid_attachments', "'attachments' must be a list");
  return value;
}

function text(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

function texts(value: unknown): string[] {
  return Array.isArray(value) ? value.filter((item) => typeof item === 'string') : [];
}
