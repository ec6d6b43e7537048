import type { IndexContent, IndexHead, IndexPlace, IndexStore, WorkspaceIndexDocument } from './index-store';
import { trustworthy } from './trustworthy';

export interface WorkspaceIndexOptions {
  store: IndexStore;
  /** Wall clock in milliseconds: the index is shared between processes. */
  now: () => number;
  onFailure: (workspaceId: string, error: unknown) => void;
}

/** An index so young is served as it is, whatever runs. */
const FRESH_MS = 2_000;
/** An older one is said to be stale. */
const STALE_MS = 60_000;
/** Where nothing runs a look means a sandbox, so there is one in a minute, whoever asks for how many. */
const LOOK_EVERY_MS = 60_000;
/** Whoever asks waits so long for a look into a sandbox that runs, and for the first one of all. */
const WAIT_MS = 1_500;
const FIRST_WAIT_MS = 10_000;
/** Another process may be at the first look. */
const POLL_MS = 250;

export interface Look {
  /** Looks into the workspace. */
  look: () => Promise<IndexContent>;
  /** A sandbox runs there anyway, so that looking costs little. */
  isLive: boolean;
}

export interface Found {
  files: readonly string[];
  /** Undefined: nobody has looked there yet. */
  content?: IndexHead['content'];
  stale: boolean;
}

/** What is known of workspaces: told by sandboxes, looked up where none runs, shared by everybody who asks. */
export class WorkspaceIndex {
  private readonly looks = new Map<string, Promise<void>>();

  constructor(private readonly options: WorkspaceIndexOptions) {}

  /** @throws why there is none, where the first look failed */
  async get(place: IndexPlace, { look, isLive }: Look): Promise<Found> {
    const { store, now } = this.options;
    const known = await store.find(place);
    const ageMs = known ? now() - known.atMs : Infinity;
    const isWanted = isLive
      ? ageMs > FRESH_MS
      : ageMs > STALE_MS && (await store.claimRefresh(place, now(), LOOK_EVERY_MS));
    if (isWanted) this.start(place, look, !known);
    if (known && !isLive) return this.told(known);
    const found = known ? await this.afterLook(place) : await this.first(place);
    return found ? this.told(found) : { files: [], stale: true };
  }

  /** Nothing is looked into for it. */
  heads(tenantId: string, workspaceIds: readonly string[]): Promise<Map<string, IndexHead>> {
    return this.options.store.heads(tenantId, workspaceIds);
  }

  /** @param beganAtMs when the look began that found it */
  async save(place: IndexPlace, found: IndexContent, beganAtMs: number): Promise<void> {
    const { files, ...content } = trustworthy(found);
    const { tenantId, workspaceId } = place;
    await this.options.store.save({ tenantId, workspaceId, revision: beganAtMs, atMs: beganAtMs, content, files });
  }

  /** A sandbox that sees the workspace says that it has not changed. */
  confirm(place: IndexPlace): Promise<void> {
    return this.options.store.confirm(place, this.options.now());
  }

  private told({ files, content, atMs }: WorkspaceIndexDocument): Found {
    return { files, content, stale: this.options.now() - atMs > STALE_MS };
  }

  private async afterLook(place: IndexPlace): Promise<WorkspaceIndexDocument | undefined> {
    const running = this.looks.get(place.workspaceId);
    // What is known is better than nothing.
    if (running) await within(WAIT_MS, running).catch(() => undefined);
    return this.options.store.find(place);
  }

  private async first(place: IndexPlace): Promise<WorkspaceIndexDocument | undefined> {
    const { store } = this.options;
    const running = this.looks.get(place.workspaceId);
    if (running) {
      await within(FIRST_WAIT_MS, running);
      return store.find(place);
    }
    for (let left = FIRST_WAIT_MS / POLL_MS; left > 0; left -= 1) {
      const found = await store.find(place);
      if (found) return found;
      await within(POLL_MS, new Promise<void>(() => undefined));
    }
    return undefined;
  }

  private start(place: IndexPlace, look: () => Promise<IndexContent>, isFirst: boolean): void {
    const { workspaceId } = place;
    if (this.looks.has(workspaceId)) return;
    const running = this.run(place, look)
      .catch((error: unknown) => {
        this.options.onFailure(workspaceId, error);
        if (isFirst) throw error;
      })
      .finally(() => this.looks.delete(workspaceId));
    running.catch(() => undefined); // told to whoever waits, and to the log
    this.looks.set(workspaceId, running);
  }

  private async run(place: IndexPlace, look: () => Promise<IndexContent>): Promise<void> {
    const beganAtMs = this.options.now();
    await this.save(place, await look(), beganAtMs);
  }
}

async function within(limitMs: number, work: Promise<void>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, limitMs);
  });
  await Promise.race([work, late]).finally(() => clearTimeout(timer));
}
