import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { runnersPb, type StoredEvent } from '@margay/contracts';
import { PermissionDeniedError, UnavailableError } from '@margay/errors';
import {
  CommitLoop,
  inlineBlobs,
  LogClock,
  MemoryBlobStore,
  MemoryCommitStore,
  offload,
  unpackRecord,
  type Command,
  type CommitDocument,
  type CommitOutcome,
  type Head,
  type RunnerCommand,
} from '@margay/log';
import {
  createLogger,
  generateKeys,
  GrpcServer,
  grpcClient,
  KeyRing,
  type CallContext,
  type GrpcClient,
  type GrpcHandlers,
  type GrpcServerOptions,
} from '@margay/platform';
import { createCommand, messageCommand, runRequest } from '@margay/testing';

type Definition = typeof runnersPb.RunnersDefinition;
type JournalStream = Parameters<GrpcHandlers<Definition>['journal']>[0];
type Response = NonNullable<runnersPb.JournalResponse['message']>;

/** What a spec does to one commit that a runner sends. */
export type Fate = 'stored' | 'lost' | 'stored, answer lost' | 'closing' | 'faulty';

interface AnnouncedItem {
  kind: string;
  n: number;
  item: string;
  text: string;
  callId?: string;
  outcome?: string;
}

class SpecClock extends LogClock {
  nowMicros = () => Math.floor((performance.timeOrigin + performance.now()) * 1_000);
  monotonicMs = () => performance.now();
  random = () => 0.5;

  async sleep(ms: number): Promise<void> {
    await new Promise((resolve) => setTimeout(resolve, ms));
  }
}

const logger = createLogger({ level: 'off' });
const TENANT = 'tenant';

/** A session service with the real log behind it and real streams before it; a spec says what goes wrong. */
export class ScriptedSession {
  readonly attached: runnersPb.AttachRequest[] = [];
  /** Ids of the commits that runners sent, repeats included. */
  readonly sent: string[] = [];
  readonly deltas: runnersPb.JournalDelta[] = [];
  /** `haveC` of each time a journal was opened. */
  readonly opens: number[] = [];
  /** The next commits, in order; afterwards all are stored. */
  readonly fates: Fate[] = [];
  /** Records per `opened` message. */
  pageSize = 100;
  /** Cuts the stream after so many `opened` messages, once. */
  cutAfterPages?: number | undefined;
  /** Messages of others are announced. */
  announces = true;
  /** No journal opens: the log is not to be read. */
  refusal?: Error | undefined;
  openJournals = 0;
  client!: GrpcClient<Definition>;
  private readonly store = new MemoryCommitStore();
  private readonly blobs = new MemoryBlobStore();
  private readonly listeners = new Set<(document: CommitDocument) => void>();
  private readonly cutters = new Set<() => void>();
  private readonly loop = new CommitLoop({
    store: this.store,
    clock: new SpecClock(),
    onCommitted: (document) => this.listeners.forEach((listener) => listener(document)),
  });
  private server!: GrpcServer;
  private keys!: KeyRing;
  private directory!: string;
  private count = 0;

  static async start(options: Partial<GrpcServerOptions> = {}): Promise<ScriptedSession> {
    const session = new ScriptedSession();
    session.directory = await mkdtemp(join(tmpdir(), 'margay-runner-'));
    await generateKeys(session.directory, ['session', 'agent-runner']);
    session.keys = await KeyRing.load(session.directory, 'session');
    const listen = `unix:${session.directory}/session.sock`;
    session.server = new GrpcServer({ listen, keys: session.keys, logger, ...options });
    session.server.add(runnersPb.RunnersDefinition, {
      attach: (stream) =>
        void stream.on('data', (message) => session.attached.push(message)).on('end', () => stream.end()),
      journal: (stream, context) => session.journal(stream, context),
      readAttachment: () => Promise.reject(new Error('not part of these specs')),
    });
    await session.server.start();
    const runnerKeys = await KeyRing.load(session.directory, 'agent-runner');
    session.client = grpcClient(runnersPb.RunnersDefinition, listen, { keys: runnerKeys });
    return session;
  }

  async stop(): Promise<void> {
    this.client.close();
    this.loop.close();
    await this.server.close(0);
    await rm(this.directory, { recursive: true });
  }

  /** A new session with one run, claimed by the runner that gets this. */
  async assign(text = 'Go.'): Promise<runnersPb.Assign> {
    this.count += 1;
    const sessionId = String(this.count).padStart(32, '0');
    await this.submit(sessionId, createCommand({ commitId: `create ${sessionId}`, tenantId: TENANT }));
    const { head } = await this.submit(sessionId, { kind: 'accept', commitId: this.id(), run: runRequest(text) });
    return this.claim(head);
  }

  /** Gives the run to another owner. */
  async takeOver({ sessionId, runId, epoch }: runnersPb.Assign): Promise<runnersPb.Assign> {
    const command = { kind: 'takeover' as const, commitId: this.id(), runId, epoch, cause: 'lease' as const };
    return this.claim((await this.submit(sessionId, command)).head);
  }

  async claim({ sessionId, run, epoch }: Head): Promise<runnersPb.Assign> {
    const runId = run?.id ?? '';
    const claim = { kind: 'claim' as const, commitId: this.id(), runId, epoch, owner: 'spec' };
    const { c, head } = await this.submit(sessionId, claim);
    const grant = await this.grant(sessionId, runId, head.epoch);
    return { sessionId, runId, epoch: head.epoch, claimC: c, grant, traceparent: '', isolated: false };
  }

  grant(sessionId: string, runId: string, epoch: number): Promise<string> {
    const workspace = { kind: 'own' as const };
    const scope = { v: 1 as const, tenantId: TENANT, storeGeneration: 0, principal: 'user', workspace };
    return this.keys.signRunGrant({ ...scope, sessionId, runId, epoch });
  }

  steer(sessionId: string, text: string) {
    return this.submit(sessionId, messageCommand(text, {}));
  }

  interrupt(sessionId: string) {
    return this.submit(sessionId, { kind: 'interrupt', commitId: this.id() });
  }

  cancel(sessionId: string) {
    return this.submit(sessionId, { kind: 'cancel', commitId: this.id() });
  }

  async head(sessionId: string): Promise<Head> {
    return (await this.loop.confirmedTip(sessionId)).head;
  }

  async events(sessionId: string): Promise<StoredEvent[]> {
    const events: StoredEvent[] = [];
    for await (const document of this.store.range(sessionId, 1))
      events.push(...document.events.map(({ frame }) => JSON.parse(frame) as StoredEvent));
    return events;
  }

  /** Ends all journals like a replica that dies. */
  cut(): void {
    for (const cut of this.cutters) cut();
  }

  private id(): string {
    return `spec-${(this.count += 1)}`;
  }

  private async submit(sessionId: string, command: Command): Promise<CommitOutcome & { ok: true }> {
    const outcome = await this.loop.submit(sessionId, command);
    if (!outcome.ok) throw new Error(outcome.rejection.message);
    return outcome;
  }

  private journal(stream: JournalStream, context: CallContext): void {
    let isCut = false;
    const cut = (): void => {
      isCut = true;
      context.fail(new UnavailableError('unavailable', 'the replica is gone'));
    };
    const onCommitted = (document: CommitDocument): void => this.announce(document, opened, respond);
    let opened: runnersPb.JournalOpen | undefined;
    const respond = (message: Response): void => {
      if (!stream.destroyed) stream.write({ message });
    };
    this.openJournals += 1;
    this.cutters.add(cut);
    stream.on('data', ({ message }: runnersPb.JournalRequest) => {
      if (isCut) return;
      if (message?.$case === 'delta') this.deltas.push(message.value);
      if (message?.$case === 'commit' && opened) void this.commit(message.value, opened, respond, cut);
      if (message?.$case !== 'open') return;
      const grant = context.grant();
      if (grant.runId !== message.value.runId)
        return context.fail(new PermissionDeniedError('grant_mismatch', 'the grant is for another run'));
      this.opens.push(message.value.haveC);
      if (this.refusal) return context.fail(this.refusal);
      opened = message.value;
      this.listeners.add(onCommitted);
      void this.tell(opened, respond, cut);
    });
    stream.on('end', () => stream.end());
    stream.once('close', () => {
      this.openJournals -= 1;
      this.cutters.delete(cut);
      this.listeners.delete(onCommitted);
    });
  }

  private async tell(
    open: runnersPb.JournalOpen,
    respond: (message: Response) => void,
    cut: () => void,
  ): Promise<void> {
    const records: runnersPb.JournalRecord[] = [];
    for await (const document of this.store.range(open.sessionId, open.haveC + 1)) {
      const frames = document.events.map(({ frame }) => frame);
      for (const text of document.records) {
        const record = await inlineBlobs(TENANT, unpackRecord(text, frames), this.blobs);
        records.push({ c: document.c, json: JSON.stringify(record) });
      }
    }
    const head = await this.head(open.sessionId);
    if (!isOwner(head, open)) return respond(goodbye(head, open));
    for (let at = 0; at + this.pageSize < records.length; at += this.pageSize) {
      respond({
        $case: 'opened',
        value: { records: records.slice(at, at + this.pageSize), last: false, headJson: '' },
      });
      if (this.cutAfterPages !== undefined && --this.cutAfterPages === 0) {
        this.cutAfterPages = undefined;
        setTimeout(cut, 20);
        return;
      }
    }
    const rest = records.slice(Math.floor(Math.max(0, records.length - 1) / this.pageSize) * this.pageSize);
    respond({ $case: 'opened', value: { records: rest, last: true, headJson: JSON.stringify(head) } });
  }

  private async commit(
    { commitId, commandJson }: runnersPb.JournalCommit,
    { sessionId, runId, epoch }: runnersPb.JournalOpen,
    respond: (message: Response) => void,
    cut: () => void,
  ): Promise<void> {
    this.sent.push(commitId);
    const fate = this.fates.shift() ?? 'stored';
    if (fate === 'lost') return cut();
    if (fate === 'closing' || fate === 'faulty')
      return respond({ $case: 'rejected', value: { commitId, reason: fate, message: fate } });
    const command = { ...(JSON.parse(commandJson) as object), commitId, runId, epoch } as RunnerCommand;
    const fitted = command.kind === 'release' ? command : await offload(TENANT, command, this.blobs);
    const outcome = await this.loop.submit(sessionId, fitted);
    if (fate === 'stored, answer lost') return cut();
    if (outcome.ok) return respond({ $case: 'committed', value: { commitId, c: outcome.c, seq: outcome.head.seq } });
    const { reason, message } = outcome.rejection;
    if (reason === 'fenced') respond(goodbye(outcome.head, { runId }));
    else respond({ $case: 'rejected', value: { commitId, reason, message } });
  }

  private announce(
    { sessionId, head, records, commitIds }: CommitDocument,
    opened: runnersPb.JournalOpen | undefined,
    respond: (message: Response) => void,
  ): void {
    if (!opened || sessionId !== opened.sessionId) return;
    if (!isOwner(head, opened)) {
      const isOwn = commitIds.some((id) => id.startsWith(`${opened.runId}.${opened.epoch}.`));
      return isOwn ? undefined : respond(goodbye(head, opened));
    }
    if (!this.announces) return;
    const items = records
      .map((text) => JSON.parse(text) as AnnouncedItem)
      .filter(({ kind }) => kind === 'inbox')
      .map(({ n, item, text, callId = '', outcome = '' }) => ({ n, kind: item, text, callId, outcome }));
    if (items.length > 0) respond({ $case: 'inbox', value: { items } });
  }
}

function isOwner({ run, epoch }: Head, opened: { runId: string; epoch: number }): boolean {
  return run?.id === opened.runId && run.state === 'running' && epoch === opened.epoch;
}

function goodbye({ lastRun }: Head, { runId }: { runId: string }): Response {
  const isCanceled = lastRun?.id === runId && lastRun.doneReason === 'canceled';
  return isCanceled
    ? { $case: 'cancel', value: { reason: 'canceled' } }
    : { $case: 'fenced', value: { message: 'the run has moved on' } };
}
