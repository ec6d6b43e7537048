import { setTimeout as delay } from 'node:timers/promises';
import { EffectClass, type contentPb, type SandboxGrant, type sandboxdPb } from '@margay/contracts';
import { FailedPreconditionError, InvalidArgumentError, PermissionDeniedError, UnavailableError } from '@margay/errors';
import { OutputLog, PathPolicy, ShellHost, Toolbox, killTree, type ShellLimits } from '@margay/toolbox';
import { CallTable } from './calls/call-table';
import { Content } from './content/content';
import { epochOf, isLower, SandboxState, staleEpoch, type Epoch } from './grants/sandbox-state';
import { WorkspaceArchive } from './archive/workspace-archive';
import { Attachments } from './files/attachments';
import { expandReferences } from './files/expand-references';
import { WorkspaceView } from './files/workspace-view';
import { Journal } from './journal/journal';
import { LimitWatch } from './limits/limit-watch';

export type Isolation = 'bwrap' | 'pod' | 'uid' | 'none';

export interface SandboxOptions {
  /** Journal, incarnation, highest epoch. */
  stateFolder: string;
  root: string;
  allowedRoots: readonly string[];
  spillFolder: string;
  /** Absent: nothing can be attached. */
  attachmentsFolder?: string;
  isolation: Isolation;
  /** The whole environment of commands. */
  environment: Readonly<Record<string, string>>;
  limits: ShellLimits;
  /** No call takes longer; absent: as long as it asks for. */
  wallMs?: number;
  /** Of the container as a whole; absent: nobody looks. */
  watched?: { workspaceBytes: number; processes: number };
  /** Called whenever the session is known, from the start or by a grant. */
  onSession?: () => void;
  /** An earlier life of the sandbox saw this epoch. */
  minimum?: Epoch;
}

const VERSION = '0.1.0';
/** Cancelling ends within two seconds, so the grace is bounded too. */
const MAX_GRACE_MS = 1_000;
/** A cancel waits a second for its fence before it is answered. */
const FENCE_GRACE_MS = 500;
const SELF_TEST_MS = 10_000;

/** The daemon without its socket: admission by grants and epochs, exactly-once calls, and their end. */
export class Sandbox {
  private isClosing = false;
  private isDraining = false;
  private lastUsedAt = performance.now();
  private tellSaved: () => void = () => undefined;
  private readonly lastArchive = new Promise<void>((resolve) => (this.tellSaved = resolve));
  /** Content being brought. */
  private bringing = 0;
  private readonly content: Content;
  private readonly workspace: WorkspaceView;
  private watch?: LimitWatch;

  private constructor(
    private readonly options: SandboxOptions,
    private readonly state: SandboxState,
    private readonly journal: Journal,
    private readonly toolbox: Toolbox,
    private readonly calls: CallTable,
    private readonly environment: Record<string, string>,
    private readonly attachments: Attachments | undefined,
    private readonly archive: WorkspaceArchive,
  ) {
    const isBoxed = options.isolation === 'bwrap' || options.isolation === 'pod';
    this.workspace = new WorkspaceView({ root: options.root, environment }, () => this.calls.runningCount > 0);
    this.content = new Content({ root: options.root, environment, isBoxed });
  }

  static async open(options: SandboxOptions): Promise<Sandbox> {
    const hasJournal = await Journal.exists(options.stateFolder);
    const minimum = options.minimum ?? { generation: 0, epoch: 0 };
    const state = await SandboxState.open(options.stateFolder, minimum, hasJournal);
    const journal = await Journal.open(options.stateFolder);
    const { root, allowedRoots } = options;
    // In a box of its own nothing but the workspace can be reached, so links may lead where they like.
    const isBoxed = options.isolation === 'bwrap' || options.isolation === 'pod';
    const escapingLinks = isBoxed ? 'follow' : 'refuse';
    const { attachmentsFolder } = options;
    const beside = [options.spillFolder, ...(attachmentsFolder === undefined ? [] : [attachmentsFolder])];
    const paths = new PathPolicy({ root, allowedRoots: [...new Set([...allowedRoots, ...beside])], escapingLinks });
    const { limits, isolation } = options;
    const environment = { ...options.environment };
    const shell = new ShellHost({ environment, limits, ownsAllProcesses: isolation !== 'none' });
    const toolbox = new Toolbox(paths, shell);
    // With a container everything in it ends: its calls were killed, and nothing of them lives on.
    const interruptedAs = isolation === 'pod' ? 'killed' : 'unknown';
    const watch = new LimitWatch({
      root,
      ...(options.watched ?? { workspaceBytes: 0, processes: 0 }),
      isBusy: () => calls.runningCount > 0 || shell.sessions.starters.length > 0,
      end: async (limitHit, weigh) => {
        if (weigh) return calls.endHeaviest(limitHit, weigh);
        await Promise.all([calls.endAll(0, () => true, limitHit), toolbox.closeBackground(() => true, 0)]);
      },
    });
    const { spillFolder, wallMs } = options;
    const longest = wallMs === undefined ? {} : { wallMs };
    const calls = new CallTable({ journal, state, toolbox, spillFolder, interruptedAs, ...longest, space: watch });
    const interrupted = await calls.recover();
    // Outside a box the processes of a killed daemon live on.
    if (!isBoxed) await Promise.all(interrupted.map((marker) => killTree({ marker }, 0)));
    const attachments = attachmentsFolder === undefined ? undefined : new Attachments(attachmentsFolder);
    const archive = await WorkspaceArchive.open(root, options.stateFolder);
    const sandbox = new Sandbox(options, state, journal, toolbox, calls, environment, attachments, archive);
    sandbox.watch = watch;
    if (options.watched) watch.start();
    sandbox.tellSession();
    return sandbox;
  }

  get incarnation(): string {
    return this.state.incarnation;
  }

  /** Runs a command the way calls do: they find everything loaded, or the daemon does not start. */
  async selfTest(): Promise<void> {
    const call = { callId: 'self-test', signal: AbortSignal.timeout(SELF_TEST_MS), output: new OutputLog() };
    const { exitCode, result } = await this.toolbox.execute('aider_shell_tool', { command: 'exit 0' }, call);
    await call.output.close();
    if (exitCode !== 0)
      throw new UnavailableError('self_test', `A command cannot be run in this sandbox: ${JSON.stringify(result)}`);
  }

  /** Milliseconds since the last call ended; 0 while one runs. */
  get idleMs(): number {
    const isBusy = this.calls.runningCount + this.bringing > 0 || this.workspace.isWorking;
    return isBusy ? 0 : performance.now() - this.lastUsedAt;
  }

  /** The first grant that names a session binds the sandbox to it; one that names none only finds it answering. */
  async hello(grant: SandboxGrant): Promise<sandboxdPb.HelloResponse> {
    if (grant.sessionId !== undefined) await this.state.admit(grant);
    this.tellSession();
    const { incarnation } = this.state;
    return { version: VERSION, incarnation, tools: this.toolbox.toolIds, isolation: this.options.isolation };
  }

  /** Runs a call or attaches to it. Abandoning the iteration leaves it running. */
  async *execute(
    request: sandboxdPb.ExecuteRequest,
    grant: SandboxGrant,
    signal: AbortSignal,
  ): AsyncIterable<sandboxdPb.ExecuteResponse> {
    await this.admit(grant, 'execute');
    if (request.incarnation !== '' && request.incarnation !== this.state.incarnation) {
      yield { message: { $case: 'wrongIncarnation', value: { incarnation: this.state.incarnation } } };
      return;
    }
    if (this.isClosing || (this.isDraining && !this.calls.knows(request.callId)))
      throw new UnavailableError('sandbox_closing', 'The sandbox is shutting down.');
    // Files hold still under an archive; looking at them does not matter to it.
    if (request.effect !== 'pure' && !this.calls.knows(request.callId)) await this.archive.gate.pass();
    const epoch = epochOf(grant);
    const { call, reattached } = this.calls.obtain({
      ...request,
      effect: effectOf(request.effect),
      runId: grant.runId ?? '',
      epoch,
    });
    const cut = new AbortController();
    const stop = this.state.onRaise((highest) => {
      if (isLower(epoch, highest)) cut.abort(staleEpoch(epoch, highest));
    });
    try {
      yield { message: { $case: 'started', value: { reattached } } };
      yield* call.follow(request.fromOffset, AbortSignal.any([cut.signal, signal]));
    } finally {
      stop();
      if (request.effect !== 'pure') this.workspace.mayHaveChanged();
      this.lastUsedAt = performance.now();
    }
  }

  /** Files that people attached come before the calls that read them. */
  async placeAttachment(
    request: sandboxdPb.PlaceAttachmentRequest,
    grant: SandboxGrant,
  ): Promise<sandboxdPb.PlaceAttachmentResponse> {
    await this.admit(grant, 'execute');
    this.lastUsedAt = performance.now();
    if (this.attachments) return this.attachments.place(request);
    throw new FailedPreconditionError('attachments_unavailable', 'This sandbox has no place for attached files.');
  }

  async listFiles({ limit }: sandboxdPb.ListFilesRequest, grant: SandboxGrant): Promise<sandboxdPb.ListFilesResponse> {
    await this.admit(grant, 'admin');
    this.lastUsedAt = performance.now();
    return this.workspace.list(limit);
  }

  async expandReferences(
    request: sandboxdPb.ExpandReferencesRequest,
    grant: SandboxGrant,
  ): Promise<sandboxdPb.ExpandReferencesResponse> {
    await this.admit(grant, 'execute');
    this.lastUsedAt = performance.now();
    const { environment } = this;
    const { root, attachmentsFolder } = this.options;
    return { text: await expandReferences(request, { root, environment, attachmentsFolder }) };
  }

  /** Watching is no use of the sandbox: it may be stopped meanwhile. */
  async *watchIndex(grant: SandboxGrant, signal: AbortSignal): AsyncIterable<sandboxdPb.WatchIndexResponse> {
    await this.admit(grant, 'admin');
    for await (const message of this.workspace.watch(signal))
      yield { ...message, workspacePercent: this.watch?.percent };
  }

  async addWorktree(
    request: sandboxdPb.AddWorktreeRequest,
    grant: SandboxGrant,
  ): Promise<sandboxdPb.AddWorktreeResponse> {
    await this.admit(grant, 'admin');
    return this.workspace.addWorktree(request).finally(() => (this.lastUsedAt = performance.now()));
  }

  async removeWorktree(
    request: sandboxdPb.RemoveWorktreeRequest,
    grant: SandboxGrant,
  ): Promise<sandboxdPb.RemoveWorktreeResponse> {
    await this.admit(grant, 'admin');
    return this.workspace.removeWorktree(request).finally(() => (this.lastUsedAt = performance.now()));
  }

  /** A piece of what `bringContent` unpacks. */
  async placeContent(request: contentPb.PlaceRequest, grant: SandboxGrant): Promise<contentPb.PlaceResponse> {
    await this.admit(grant, 'admin');
    this.lastUsedAt = performance.now();
    return this.content.place(request);
  }

  /** Brings what the workspace begins with, before the first call. */
  async bringContent(
    request: contentPb.BringRequest,
    grant: SandboxGrant,
    { signal, tell }: { signal: AbortSignal; tell: (doing: string) => void },
  ): Promise<contentPb.BringEnd> {
    await this.admit(grant, 'admin');
    this.bringing += 1;
    try {
      return await this.content.bring(request, signal, tell);
    } finally {
      this.bringing -= 1;
      this.workspace.mayHaveChanged();
      this.lastUsedAt = performance.now();
    }
  }

  /** An archive of the workspace; the last one waits for the calls that run. */
  async *snapshot(
    request: sandboxdPb.SnapshotRequest,
    grant: SandboxGrant,
  ): AsyncIterable<sandboxdPb.SnapshotResponse> {
    await this.admit(grant, 'admin');
    if (request.last) await this.calls.idle();
    yield* this.archive.snapshot(request);
    if (request.last) this.tellSaved();
  }

  /** What was archived takes the place of what the workspace holds. */
  async restore(
    messages: AsyncIterable<sandboxdPb.RestoreRequest>,
    grant: SandboxGrant,
  ): Promise<sandboxdPb.RestoreResponse> {
    await this.admit(grant, 'admin');
    return this.archive.restore(messages).finally(() => this.workspace.mayHaveChanged());
  }

  async cancelCall(request: sandboxdPb.CancelCallRequest, grant: SandboxGrant): Promise<sandboxdPb.CancelCallResponse> {
    await this.admit(grant, 'execute');
    const graceMs = request.graceMs > 0 ? Math.min(request.graceMs, MAX_GRACE_MS) : MAX_GRACE_MS;
    return { state: await this.calls.cancel(request.callId, graceMs) };
  }

  /** After this no call of a lower epoch starts; with `kill` those that run are ended, and with `background` what they left. */
  async fence(request: sandboxdPb.FenceRequest, grant: SandboxGrant): Promise<void> {
    demand(grant, 'admin');
    await this.state.admit({ ...grant, epoch: Math.max(grant.epoch, this.state.highest.epoch) });
    const minimum = { generation: grant.storeGeneration, epoch: request.epoch };
    await this.state.raise(minimum);
    if (!request.kill) return;
    const calls = this.calls.endAll(FENCE_GRACE_MS, (call) => isLower(call.epoch, minimum));
    const isMeant = (callId: string): boolean => epochOfCall(callId, grant.sessionId ?? '') < request.epoch;
    const background = request.background && this.toolbox.closeBackground(isMeant, FENCE_GRACE_MS);
    await Promise.all([calls, background]);
  }

  async forget(request: sandboxdPb.ForgetRequest, grant: SandboxGrant): Promise<void> {
    demand(grant, 'admin');
    await this.journal.forget(request.callIds);
    if (request.runId !== '') await this.journal.forgetRun(request.runId);
  }

  /** Serves no new call; those that run get so long before they are ended, too. */
  async drain(graceMs: number): Promise<void> {
    this.isDraining = true;
    const timer = new AbortController();
    await Promise.race([this.calls.idle(), delay(graceMs, undefined, timer)]);
    timer.abort();
    await this.calls.endAll(MAX_GRACE_MS, () => true, 'drain');
  }

  /** Until the last archive has been taken, or so long; at once where there is nothing that anybody would save. */
  async saved(waitMs: number): Promise<void> {
    if (this.state.sessionId === null || waitMs === 0) return;
    const timer = new AbortController();
    await Promise.race([this.lastArchive, delay(waitMs, undefined, timer)]);
    timer.abort();
  }

  /** @throws PERMISSION_DENIED `grant_scope`; what a grant of another session, or of an earlier owner, is refused with */
  private async admit(grant: SandboxGrant, scope: SandboxGrant['scope'][number]): Promise<void> {
    demand(grant, scope);
    await this.state.admit(grant);
  }

  /** Commands know their session once it is known. */
  private tellSession(): void {
    const { sessionId } = this.state;
    if (sessionId === null) return;
    this.environment['MARGAY_SESSION_ID'] = sessionId;
    this.options.onSession?.();
  }

  /** Ends every call and background shell; calls that were running are stored as `killed`. */
  async close(graceMs: number): Promise<void> {
    this.isClosing = true;
    await this.watch?.stop();
    await this.calls.endAll(Math.min(graceMs, MAX_GRACE_MS));
    await this.toolbox.close(Math.min(graceMs, MAX_GRACE_MS));
    await this.journal.close();
  }
}

export function demand(grant: SandboxGrant, scope: SandboxGrant['scope'][number]): void {
  if (grant.scope.includes(scope)) return;
  throw new PermissionDeniedError('grant_scope', `The grant does not cover "${scope}".`);
}

/** Call ids are `<session>.<epoch>.<step>.<index>`; NaN for others, which compares as meant by nobody. */
function epochOfCall(callId: string, sessionId: string): number {
  const [epoch] = callId.startsWith(`${sessionId}.`) ? callId.slice(sessionId.length + 1).split('.') : [];
  return Number(epoch ?? NaN);
}

function effectOf(text: string): EffectClass {
  const parsed = EffectClass.safeParse(text);
  if (!parsed.success) throw new InvalidArgumentError('bad_effect', `"${text}" is no effect class.`);
  return parsed.data;
}
