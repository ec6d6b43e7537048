import { SessionState, subjects } from '@margay/contracts';
import { isMargayError } from '@margay/errors';
import type { CallOptions, Logger } from '@margay/platform';
import { LRUCache } from 'lru-cache';
import type { Backends } from '../backends';
import type { SideFeed } from './lane-source';
import type { HubBus } from './live-bus';
import type { SharedSocket } from './shared-socket';
import { userStateFrame } from './control-frames';

export interface UserFeedOptions {
  backends: Backends;
  bus: HubBus;
  tenantId: string;
  call: CallOptions;
  logger: Logger;
  /** What was lost on the way is looked up so often. */
  refreshMs: number;
}

/** Sessions whose state is remembered, and told at first. */
const LISTED = 100;
const REMEMBERED = 2_000;
const SUBJECT_SESSION = 3;
const STATE_FIELD = '"state":';

interface Known {
  /** Whether the user may read it; false until that is known. */
  isVisible: boolean;
  /** Number of the commit that the newest state heard of belongs to. */
  c: number;
  stateJson: string;
  /** What the client was told last. */
  told: string;
  heardMs: number;
}

/** States of all sessions that the user's list shows, as they change. Notifications and approvals do not exist yet. */
export class UserFeed implements SideFeed {
  private readonly known = new LRUCache<string, Known>({ max: REMEMBERED });
  private socket!: SharedSocket;
  private stop: (() => void)[] = [];

  constructor(private readonly options: UserFeedOptions) {}

  async start(socket: SharedSocket): Promise<void> {
    this.socket = socket;
    const { bus, tenantId, refreshMs } = this.options;
    const refresh = (): void => void this.list();
    const timer = setInterval(refresh, refreshMs).unref();
    this.stop = [
      bus.subscribe(subjects.anySessionEvents(tenantId), (data, subject) => this.hear(data, subject)),
      bus.onReconnect(refresh),
      () => clearInterval(timer),
    ];
    await bus.flush();
    await this.list();
  }

  close(): void {
    for (const stop of this.stop.splice(0)) stop();
  }

  private hear(data: Uint8Array, subject: string): void {
    const sessionId = subject.split('.')[SUBJECT_SESSION] ?? '';
    const { c, stateJson } = stateOf(Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString('utf8'));
    const known = this.known.get(sessionId) ?? this.meet(sessionId);
    if (c < known.c) return;
    Object.assign(known, { c, stateJson, heardMs: performance.now() });
    this.tell(sessionId, known);
  }

  private meet(sessionId: string): Known {
    const known = { isVisible: false, c: 0, stateJson: '', told: '', heardMs: -Infinity };
    this.known.set(sessionId, known);
    void this.look(sessionId, known);
    return known;
  }

  /** A session not seen before: does the user see it? */
  private async look(sessionId: string, known: Known): Promise<void> {
    try {
      known.isVisible = await this.isVisible(sessionId);
      this.tell(sessionId, known);
    } catch (error) {
      this.known.delete(sessionId);
      this.options.logger.warn({ sessionId, err: error }, 'state of a session not told on its user feed');
    }
  }

  private async isVisible(sessionId: string): Promise<boolean> {
    try {
      await this.options.backends.sessions.getSession({ sessionId }, this.options.call);
      return true;
    } catch (error) {
      if (isMargayError(error) && (error.code === 'NOT_FOUND' || error.code === 'PERMISSION_DENIED')) return false;
      throw error;
    }
  }

  /** The newest sessions; a row may be behind what was heard a moment ago. */
  private async list(): Promise<void> {
    const { backends, call, logger } = this.options;
    const wish = { includeArchived: false, projects: [], sessionIds: [], limit: LISTED, offset: 0 };
    try {
      const { summariesJson } = await backends.sessions.listSessions(wish, call);
      for (const text of summariesJson) {
        const summary = JSON.parse(text) as { session_id: string };
        this.listed(summary.session_id, JSON.stringify(SessionState.parse(summary)));
      }
    } catch (error) {
      logger.warn({ err: error }, 'sessions of a user feed could not be listed');
    }
  }

  private listed(sessionId: string, stateJson: string): void {
    const known = this.known.get(sessionId) ?? { isVisible: true, c: 0, stateJson, told: '', heardMs: -Infinity };
    this.known.set(sessionId, known);
    if (performance.now() - known.heardMs >= this.options.refreshMs)
      Object.assign(known, { isVisible: true, stateJson });
    this.tell(sessionId, known);
  }

  private tell(sessionId: string, known: Known): void {
    const { isVisible, stateJson, told } = known;
    if (!isVisible || stateJson === told || stateJson === '') return;
    known.told = stateJson;
    this.socket.write(userStateFrame(sessionId, stateJson));
  }
}

/** The state stands last in a live message, and only there is its name unescaped: frames need not be parsed. */
function stateOf(message: string): { c: number; stateJson: string } {
  const { state } = JSON.parse(`{${message.slice(message.lastIndexOf(STATE_FIELD))}`) as { state: string };
  return { c: Number(/^\{"c":(\d+)/.exec(message)?.[1] ?? 0), stateJson: state };
}
