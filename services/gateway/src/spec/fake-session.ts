import { createHash, randomBytes } from 'node:crypto';
import {
  isoMicros,
  subjects,
  type accessPb,
  type Attachment,
  type LiveDelta,
  type Principal,
  type sessionsPb,
} from '@margay/contracts';
import {
  errorOf,
  InvalidArgumentError,
  NotFoundError,
  UnauthenticatedError,
  type ErrorCode,
  type MargayError,
  PermissionDeniedError,
} from '@margay/errors';
import {
  CommitLoop,
  emptyHead,
  MemoryBlobStore,
  MemoryCommitStore,
  readConfirmedTip,
  sessionState,
  verifyLog,
  type Command,
  type CommitDocument,
  type Head,
  type LogClock,
  type RunRequest,
  type StepCommand,
} from '@margay/log';
import type { GrpcHandlers } from '@margay/platform';
import { fakeFork } from './fake-fork';
import { FakeTenants } from './fake-tenants';
import { FakeProjects } from './fake-projects';

export const CALL_TOKEN = 'token';

type SessionsDefinition = typeof sessionsPb.SessionsDefinition;
type AccessDefinition = typeof accessPb.AccessDefinition;
type Events = StepCommand['events'];

const CODES: Record<string, ErrorCode> = {
  session_not_found: 'NOT_FOUND',
  session_running: 'ABORTED',
  session_terminated: 'FAILED_PRECONDITION',
  idempotency_key_reused: 'ALREADY_EXISTS',
  head_too_large: 'INVALID_ARGUMENT',
};

const clock: LogClock = {
  nowMicros: () => Date.now() * 1_000,
  monotonicMs: () => performance.now(),
  sleep: (ms) => new Promise((resolve) => setTimeout(resolve, ms)),
  random: Math.random,
};

export interface SpecKey {
  text: string;
  identity: accessPb.AuthenticateResponse;
}

/** The session service over the real log in memory: its answers, refusals and live messages are the real ones. */
export class FakeSession {
  readonly store = new MemoryCommitStore();
  readonly blobs = new MemoryBlobStore();
  readonly projects = new FakeProjects();
  readonly tenants = new FakeTenants();
  readonly keys = new Map<string, SpecKey>();
  readonly calls: { method: string; request: unknown }[] = [];
  /** The next call of a method fails with this. */
  readonly failures = new Map<string, MargayError>();
  /** Awaited before a call is answered. */
  readonly delays = new Map<string, Promise<void>>();
  private readonly loop: CommitLoop;
  private readonly heads = new Map<string, Head>();
  private count = 0;

  constructor(private readonly bus: { publish(subject: string, data: string): void }) {
    this.loop = new CommitLoop({ store: this.store, clock, onCommitted: (document) => this.publish(document) });
  }

  addKey(identity: Partial<accessPb.AuthenticateResponse> = {}): SpecKey {
    const text = `mk_local_${randomBytes(16).toString('hex')}_${randomBytes(32).toString('base64url')}`;
    const full = {
      tenantId: 'default',
      principal: 'user:ada',
      role: 'owner',
      scopes: [],
      allScopes: true,
      ...identity,
    };
    const key = { text, identity: full };
    this.keys.set(sha256(text), key);
    return key;
  }

  revokeKey({ text }: SpecKey): void {
    this.keys.delete(sha256(text));
  }

  close(): void {
    this.loop.close();
  }

  async createSession(tenantId = 'default', owner = 'user:ada'): Promise<string> {
    const sessionId = randomBytes(16).toString('hex');
    const binding = { project: null, cwd: null };
    await this.commit(sessionId, {
      kind: 'create',
      tenantId,
      owner,
      tag: null,
      context: { model: 'scripted/echo' },
      binding,
    });
    return sessionId;
  }

  async accept(sessionId: string, text: string): Promise<string> {
    const { answer } = await this.commit(sessionId, { kind: 'accept', run: runRequest(text) });
    return String(answer['run_id']);
  }

  /** The queued run is taken by a runner; a commit without public events. */
  async claim(sessionId: string): Promise<void> {
    const { run, epoch } = this.head(sessionId);
    await this.commit(sessionId, { kind: 'claim', runId: run?.id ?? '', epoch, owner: 'runner' });
  }

  async step(sessionId: string, ...events: Events): Promise<number> {
    const { run, epoch } = this.head(sessionId);
    const command = { kind: 'step' as const, runId: run?.id ?? '', epoch, events, records: [] };
    return (await this.commit(sessionId, command)).c;
  }

  /** The run asks a person, with `CALL_TOKEN`. @returns the id of the call */
  async ask(sessionId: string): Promise<string> {
    const { run, epoch } = this.head(sessionId);
    const callId = `${sessionId}.${epoch}.1.0`;
    const asked = { call_id: callId, call_token: CALL_TOKEN, questions: [], timeout_seconds: null, notes_placeholder: null }; // prettier-ignore
    const events = [{ type: 'user_question' as const, payload: asked }];
    const questions = [{ callId, timeoutSeconds: null }];
    await this.commit(sessionId, { kind: 'step', runId: run?.id ?? '', epoch, events, records: [], questions });
    return callId;
  }

  async finish(sessionId: string, text = 'done'): Promise<number> {
    const { run, epoch } = this.head(sessionId);
    const completion = { done: true, done_reason: 'completed', task_result: text };
    const command = { kind: 'finish' as const, runId: run?.id ?? '', epoch, events: [], records: [], text, completion };
    return (await this.commit(sessionId, command)).c;
  }

  head(sessionId: string): Head {
    return this.heads.get(sessionId) ?? emptyHead(sessionId);
  }

  publishDelta(
    sessionId: string,
    text: string,
    options: { c?: number; step?: number; offset?: number; agent?: string } = {},
  ): void {
    const head = this.head(sessionId);
    const { c = head.c, step = 1, offset = 0, agent = 'root' } = options;
    const payload = { text, agent_id: agent, depth: 0, step, offset };
    const delta: LiveDelta = { c, runId: head.run?.id ?? '', payload };
    this.bus.publish(subjects.sessionDeltas(head.tenantId, sessionId), JSON.stringify(delta));
  }

  sessions(): GrpcHandlers<SessionsDefinition> {
    const handlers = this.plainHandlers();
    // Every call is remembered, and can be made to fail or wait.
    return Object.fromEntries(
      Object.entries(handlers).map(([method, handler]) => [method, this.watched(method, handler as AnyHandler)]),
    ) as unknown as GrpcHandlers<SessionsDefinition>;
  }

  access(): GrpcHandlers<AccessDefinition> {
    const authenticate = ({ secretSha256 }: accessPb.AuthenticateRequest) => {
      const key = this.keys.get(secretSha256.toString('hex'));
      if (!key) throw new UnauthenticatedError('unknown_key', 'no such key');
      return Promise.resolve(key.identity);
    };
    return {
      authenticate: this.watched('authenticate', authenticate as AnyHandler) as typeof authenticate,
      createTenant: refuse,
      createKey: refuse,
      ...this.tenants.handlers(),
    };
  }

  countOf(method: string): number {
    return this.calls.filter((call) => call.method === method).length;
  }

  private watched(method: string, handler: AnyHandler): AnyHandler {
    const check = async (request: unknown) => {
      this.calls.push({ method, request });
      await this.delays.get(method);
      const failure = this.failures.get(method);
      this.failures.delete(method);
      if (failure) throw failure;
    };
    if (method === 'readCommits' || method === 'readBlob') {
      return async function* (request, context) {
        await check(request);
        yield* handler(request, context) as AsyncIterable<unknown>;
      };
    }
    return async (request, context) => {
      await check(request);
      return handler(request, context);
    };
  }

  private plainHandlers(): GrpcHandlers<SessionsDefinition> {
    const summaryOf = (head: Head) => JSON.stringify(summary(head));
    return {
      createSession: async (request, context) => {
        const { tenantId, principal } = context.principal();
        const hash = sha256(`${tenantId}${request.idempotencyKey}`).slice(0, 32);
        const sessionId = request.idempotencyKey ? hash : randomBytes(16).toString('hex');
        const sent = JSON.parse(request.contextJson || '{}') as Record<string, unknown>;
        const capabilities = request.hasCapabilities ? { client_capabilities: request.capabilities } : {};
        const { replayed } = await this.commit(
          sessionId,
          {
            kind: 'create',
            tenantId,
            owner: principal,
            tag: request.sessionTag || null,
            context: { model: 'scripted/echo', ...sent, ...capabilities },
            binding: { project: request.project || null, cwd: request.cwd || null },
          },
          request.idempotencyKey,
        );
        return { sessionId, created: !replayed, replayed };
      },
      getSession: async ({ sessionId }, context) => ({
        summaryJson: summaryOf(await this.seen(sessionId, context.principal())),
      }),
      listSessions: (request, context) => {
        const principal = context.principal();
        const { sessionIds } = request;
        const isMeant = ({ sessionId, runNo }: Head) =>
          sessionIds.length === 0 ? runNo > 0 : sessionIds.includes(sessionId);
        const rows = [...this.heads.values()].filter((head) => isSeen(head, principal) && isMeant(head));
        const page = rows.slice(
          request.offset,
          request.limit === undefined ? undefined : request.offset + request.limit,
        );
        return Promise.resolve({ summariesJson: page.map(summaryOf) });
      },
      acceptRun: async (request, context) => {
        await this.seen(request.sessionId, context.principal());
        const run = { ...runRequest(request.text), requestHash: sha256(`${request.text} ${request.contextJson}`) };
        const { answer, replayed } = await this.commit(
          request.sessionId,
          { kind: 'accept', run },
          request.idempotencyKey,
        );
        return { runId: String(answer['run_id']), replayed };
      },
      sendMessage: async (request, context) => {
        await this.seen(request.sessionId, context.principal());
        const run = { ...runRequest(request.text), requestHash: sha256(request.text) };
        const { answer, replayed } = await this.commit(
          request.sessionId,
          { kind: 'message', run },
          request.idempotencyKey,
        );
        const steered = answer['steered'] === true;
        return { steered, runId: steered ? '' : String(answer['run_id']), replayed };
      },
      interruptRun: async ({ sessionId }, context) => ({
        interrupted: await this.ends(sessionId, 'interrupt', context.principal()),
        replayed: false,
      }),
      cancelRun: async ({ sessionId }, context) => ({
        canceled: await this.ends(sessionId, 'cancel', context.principal()),
        replayed: false,
      }),
      recoverSession: async ({ sessionId, action, idempotencyKey }, context) => {
        await this.seen(sessionId, context.principal());
        const run = { ...runRequest('again'), requestHash: sha256(action) };
        const command = { kind: 'recover' as const, action: 'continue' as const, run };
        const { answer, replayed } = await this.commit(sessionId, command, idempotencyKey);
        return { runId: String(answer['run_id']), replayed };
      },
      answerQuestion: async ({ sessionId, callId, callToken, answersJson, idempotencyKey }, context) => {
        await this.seen(sessionId, context.principal());
        if (callToken !== CALL_TOKEN) throw new PermissionDeniedError('wrong_call_token', 'not the token');
        const given = { callId, answers: JSON.parse(answersJson) as unknown[], notes: null, via: 'rest', text: 'said' };
        const { answer, replayed } = await this.commit(sessionId, { kind: 'answer', ...given }, idempotencyKey);
        return { delivery: String(answer['delivery']), replayed };
      },
      terminateSession: async ({ sessionId }, context) => {
        const before = await this.seen(sessionId, context.principal());
        if (!before.terminated) await this.commit(sessionId, { kind: 'terminate', cancelledTriggers: 2 });
        const { terminated } = this.head(sessionId);
        return { terminatedAt: isoMicros(terminated?.ts ?? 0), cancelledTriggers: terminated?.cancelledTriggers ?? 0 };
      },
      readCommits: (request, context) => this.replay(request, context.principal()),
      getState: async ({ sessionId }, context) => {
        await this.seen(sessionId, context.principal());
        const { head } = await readConfirmedTip(this.store, sessionId);
        return { state: stateMessage(head) };
      },
      probeCommits: async ({ probes }) => {
        const found = await Promise.all(probes.map(({ sessionId, c }) => this.store.readNumber(sessionId, c)));
        return { sessionIds: found.flatMap((document) => document?.sessionId ?? []) };
      },
      readBlob: (request, context) => this.readBlob(request, context.principal().tenantId),
      forkSession: async (request, context) => {
        const source = await this.seen(request.sessionId, context.principal());
        const last = await fakeFork(this.store, source, request, randomBytes(16).toString('hex'));
        this.heads.set(last.sessionId, last.head);
        const forkedAt = last.commands[0]?.answer['forked_at'];
        return { sessionId: last.sessionId, forkedAt: forkedAt ? String(forkedAt) : '', replayed: false };
      },
      verifySession: async ({ sessionId }, context) => {
        await this.seen(sessionId, context.principal());
        const documents: CommitDocument[] = [];
        for await (const document of this.store.range(sessionId, 1)) documents.push(document);
        const fault = verifyLog(sessionId, documents);
        const { c: firstBad, problem } = fault ?? { c: 0, problem: '' };
        return { ok: !fault, commits: documents.length, headHash: documents.at(-1)?.hash ?? '', firstBad, problem };
      },
      addAttachment: async ({ sessionId, filename, contentType, content, model }, context) => {
        await this.seen(sessionId, context.principal());
        if (filename.endsWith('.exe')) throw new InvalidArgumentError('unsupported_type', `'${filename}' has a type`);
        const id = sha256(`${filename}${model}`);
        const record: Attachment = {
          id: id.slice(0, 32),
          filename,
          stored_name: filename,
          content_type: contentType,
          size_bytes: content.length,
          uploaded_at: '2026-01-01T00:00:00.000000+00:00',
          parsed: true,
          content_blob: { id, bytes: content.length, sha256: id },
        };
        return { attachmentJson: JSON.stringify(record) };
      },
      listFiles: async ({ sessionId, project }, context) => {
        if (sessionId !== '') await this.seen(sessionId, context.principal());
        const files = project === 'shop' ? ['src/a.ts'] : [];
        return { files, attachments: [], stale: project === 'shop', truncated: false };
      },
      getSpec: async ({ sessionId }, context) => ({
        specJson: specOf(await this.seen(sessionId, context.principal())),
      }),
      bindProject: async ({ sessionId, project, idempotencyKey }, context) => {
        await this.seen(sessionId, context.principal());
        if (project === 'tools')
          throw errorOf('FAILED_PRECONDITION', 'ambiguous_project', "'tools' means more than one project", {
            details: { candidates: ['a/tools', 'b/tools'] },
          });
        if (project !== 'shop') throw new InvalidArgumentError('unknown_project', `unknown project '${project}'`);
        const command = { kind: 'bind' as const, binding: { project, cwd: null }, context: { project } };
        const { replayed } = await this.commit(sessionId, command, idempotencyKey);
        return { specJson: specOf(this.head(sessionId)), replayed };
      },
      ...this.projects.handlers(),
      listModels: () => {
        const capabilitiesJson = JSON.stringify({ 'scripted/echo': { supports_vision: false } });
        return Promise.resolve({ models: ['scripted/echo'], defaultModel: 'scripted/echo', capabilitiesJson });
      },
    };
  }

  private async *replay(
    request: sessionsPb.ReadCommitsRequest,
    principal: Principal,
  ): AsyncIterable<sessionsPb.ReadCommitsResponse> {
    const { sessionId, from, beforeTs } = request;
    const head = await this.seen(sessionId, principal);
    const isLate = ({ ts, seq }: sessionsPb.Frame) =>
      from?.$case === 'atOrAfterTs' ? ts >= from.value : from?.$case === 'afterSeq' ? seq > from.value : true;
    const page = await this.pageOf(request, head, (frame) => isLate(frame) && (!beforeTs || frame.ts < beforeTs));
    const isWanted = ({ seq }: sessionsPb.Frame) => page.has(seq);
    const first = from?.$case === 'afterCommit' ? from.value + 1 : 1;
    let commits: sessionsPb.Commit[] = [];
    let chars = 0;
    for await (const { c, events } of this.store.range(sessionId, first, head.c)) {
      const frames = events.map(({ seq, ts, frame }) => ({ seq, ts, json: frame })).filter(isWanted);
      // Like the real one: commits without frames to show are left out.
      if (frames.length > 0) commits.push({ c, frames });
      chars += frames.reduce((sum, { json }) => sum + json.length, 0);
      if (commits.length < 100 && chars < 512 * 1024) continue;
      yield { commits, state: undefined };
      commits = [];
      chars = 0;
    }
    yield { commits, state: stateMessage(head) };
  }

  /** Numbers of the events in the page asked for. */
  private async pageOf(
    { sessionId, last, first }: sessionsPb.ReadCommitsRequest,
    head: Head,
    isWanted: (frame: sessionsPb.Frame) => boolean,
  ): Promise<Set<number>> {
    const seqs: number[] = [];
    for await (const { events } of this.store.range(sessionId, 1, head.c))
      seqs.push(...events.filter(({ seq, ts }) => isWanted({ seq, ts, json: '' })).map(({ seq }) => seq));
    return new Set(last > 0 ? seqs.slice(-last) : first > 0 ? seqs.slice(0, first) : seqs);
  }

  private async *readBlob(
    request: sessionsPb.ReadBlobRequest,
    tenantId: string,
  ): AsyncIterable<sessionsPb.ReadBlobResponse> {
    const bytes = Buffer.from(await this.blobs.get(tenantId, request.blobId));
    const end = request.length === 0 ? bytes.length : request.offset + request.length;
    yield { totalBytes: bytes.length, chunk: Buffer.alloc(0) };
    const part = bytes.subarray(request.offset, end);
    for (let at = 0; at < part.length; at += 1_000) yield { totalBytes: 0, chunk: part.subarray(at, at + 1_000) };
  }

  private async ends(sessionId: string, kind: 'interrupt' | 'cancel', principal: Principal): Promise<boolean> {
    const head = await this.seen(sessionId, principal);
    if (!head.run && !head.terminated) return false;
    await this.commit(sessionId, { kind });
    return true;
  }

  private async seen(sessionId: string, principal: Principal): Promise<Head> {
    const { head } = await readConfirmedTip(this.store, sessionId);
    if (head.c === 0 || !isSeen(head, principal))
      throw new NotFoundError('session_not_found', `session ${sessionId} not found`);
    return head;
  }

  private async commit(sessionId: string, command: WithoutId<Command>, key = '') {
    const commitId = key === '' ? `spec:${(this.count += 1)}` : `ik:${key}`;
    const outcome = await this.loop.submit(sessionId, { ...command, commitId });
    if (outcome.ok) return outcome;
    const { reason, message } = outcome.rejection;
    throw errorOf(CODES[reason] ?? 'FAILED_PRECONDITION', reason, message);
  }

  /** Announces the last commit again, with something in its state that is not stored. */
  restate(sessionId: string, more: object): void {
    const head = this.heads.get(sessionId);
    if (!head) throw new Error(`no session ${sessionId}`);
    const state = JSON.stringify({ ...sessionState(head), ...more });
    const message = { c: head.c, state, restated: true };
    this.bus.publish(subjects.sessionEvents(head.tenantId, sessionId), JSON.stringify(message));
  }

  private publish(document: CommitDocument): void {
    this.heads.set(document.sessionId, document.head);
    const frames = document.events.map(({ seq, ts, frame }) => [seq, ts, frame]);
    const isSmall = document.events.reduce((sum, { frame }) => sum + frame.length, 0) < 256 * 1024;
    const message = {
      c: document.c,
      ...(isSmall ? { frames } : {}),
      state: JSON.stringify(sessionState(document.head)),
    };
    this.bus.publish(subjects.sessionEvents(document.tenantId, document.sessionId), JSON.stringify(message));
  }
}

const refuse = () => Promise.reject(new Error('not part of these specs'));

type AnyHandler = (request: unknown, context: unknown) => unknown;
type WithoutId<T> = T extends { commitId: string } ? Omit<T, 'commitId'> : never;

function isSeen(head: Head, { tenantId, principal, role }: Principal): boolean {
  return head.tenantId === tenantId && (head.owner === principal || role !== 'member');
}

function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

function runRequest(text: string): RunRequest {
  const options = {
    model: 'scripted/echo',
    fallbackModels: [],
    mode: 'act' as const,
    mcpTools: null,
    capabilities: [],
    stepBudget: 0,
    engineVersion: '1',
  };
  const binding = { project: null, cwd: null };
  const context = { model: 'scripted/echo' };
  return { text, context, binding, attachments: [], principal: 'user:ada', pool: 'default', options };
}

function stateMessage(head: Head): sessionsPb.SessionState {
  const { c, seq, run, terminated } = head;
  return { c, seq, running: run !== null, terminated: terminated !== null, json: JSON.stringify(sessionState(head)) };
}

function summary(head: Head) {
  const { title, ...state } = sessionState(head);
  return {
    session_id: head.sessionId,
    title,
    created_at: isoMicros(head.createdTs),
    updated_at: isoMicros(head.ts),
    context: head.context,
    origin: 'user',
    capabilities: [],
    workspace: null,
    archived: false,
    projects: [],
    ...state,
  };
}

function specOf({ sessionId, binding }: Head): string {
  const none = { origin: 'user', surface: null, purpose_bound: false, slug: null, cwd: null, allowed_tools: null };
  const rest = { strict_tool_scope: false, skill_instructions_present: false, session_step_budget: null, mode: 'act' };
  const spec = {
    ...none,
    ...rest,
    project: binding.project,
    model: 'm',
    fallback_models: [],
    capabilities: [],
    sandbox_class: 'default',
  };
  return JSON.stringify({ session_id: sessionId, spec, editable: { model: true, project: true }, source: 'spec' });
}
