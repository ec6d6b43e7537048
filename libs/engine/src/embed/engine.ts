import type { StoredEvent } from '@margay/contracts';
import { NotFoundError } from '@margay/errors';
import type { CommitDocument } from '@margay/log';
import { submit } from './commands';
import type { DeltaEvent, EngineEvent, EngineOptions } from './engine-options';
import { EngineSession } from './engine-session';
import { journalOn, type SessionLog } from './journal-on';

const SESSION_ID_CHARS = 32;
/** A library has one tenant and one user. */
const LOCAL = 'local';

/** The engine without any service: sessions on a commit store, driven in this process. */
export class Engine {
  readonly log: SessionLog;
  private readonly sessions = new Map<string, EngineSession>();

  constructor(readonly options: EngineOptions) {
    const { store, blobs, clock, ids } = options;
    this.log = journalOn(store, { blobs, clock, ids, onCommitted: (document) => this.onCommitted(document) });
  }

  async createSession(options: { tag?: string; context?: Record<string, unknown> } = {}): Promise<EngineSession> {
    const sessionId = this.options.ids.hex(SESSION_ID_CHARS);
    const session = this.open(sessionId);
    await submit(this.log.loop, sessionId, {
      kind: 'create',
      commitId: `create.${sessionId}`,
      tenantId: LOCAL,
      owner: LOCAL,
      tag: options.tag ?? null,
      context: options.context ?? {},
      binding: { project: null, cwd: null },
    });
    return session;
  }

  /** @throws NotFoundError `session_not_found` */
  async openSession(sessionId: string): Promise<EngineSession> {
    const { head } = await this.log.loop.confirmedTip(sessionId);
    if (head.c === 0) throw new NotFoundError('session_not_found', `session ${sessionId} is not in the store`);
    return this.open(sessionId);
  }

  /** Refuses new commands; runs under way stop at their next commit and can be resumed later. */
  close(): void {
    this.log.loop.close();
    for (const session of this.sessions.values()) session.detach();
    this.sessions.clear();
  }

  private open(sessionId: string): EngineSession {
    const known = this.sessions.get(sessionId);
    if (known) return known;
    const session = new EngineSession(sessionId, this.options, this.log, (delta) => this.emit(session, delta));
    this.sessions.set(sessionId, session);
    return session;
  }

  private onCommitted(document: CommitDocument): void {
    const session = this.sessions.get(document.sessionId);
    if (!session) return;
    session.observe(document);
    if (!this.options.onEvent && !session.isWatched) return;
    for (const { frame } of document.events) this.emit(session, JSON.parse(frame) as StoredEvent);
  }

  private emit(session: EngineSession, event: StoredEvent | DeltaEvent): void {
    session.deliver(event as EngineEvent);
    this.options.onEvent?.(event, session.id);
  }
}

/** An engine that runs in this process; see docs and `examples/embedding`. */
export function createEngine(options: EngineOptions): Engine {
  return new Engine(options);
}
