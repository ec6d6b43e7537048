import { LRUCache } from 'lru-cache';

/** What is known of the paths of a workspace (cluster §2.4). */
export interface IndexedFiles {
  files: readonly string[];
  isGit: boolean;
  head: string;
  truncated: boolean;
  branches: readonly string[];
  /** Empty where none is checked out. */
  currentBranch: string;
  branchesInUse: readonly string[];
}

const NOTHING: IndexedFiles = {
  files: [],
  isGit: false,
  head: '',
  truncated: false,
  branches: [],
  currentBranch: '',
  branchesInUse: [],
};

interface Entry {
  found?: IndexedFiles;
  /** When the look began that found it. */
  foundAtMs: number;
  /** When the last look began. */
  askedAtMs: number;
  look?: Promise<void> | undefined;
}

export interface WorkspaceIndexOptions {
  now: () => number;
  onFailure: (key: string, error: unknown) => void;
}

const WORKSPACES_MAX = 500;
/** A list so young is served as it is, whatever runs. */
const FRESH_MS = 2_000;
/** An older one is said to be stale. */
const STALE_MS = 60_000;
/** Where nothing runs a look means a sandbox, so there is one in a minute. */
const LOOK_EVERY_MS = 60_000;
/** Whoever asks waits so long for a look at what is known already, and for the first one. */
const WAIT_MS = 1_500;
const FIRST_WAIT_MS = 10_000;

export interface Look {
  /** Looks into the workspace. */
  look: () => Promise<IndexedFiles>;
  /** A sandbox runs there anyway, so that looking costs little. */
  isLive: boolean;
}

/** The lists of paths of workspaces: made by short looks, shared by everybody who asks meanwhile. */
export class WorkspaceIndex {
  private readonly entries = new LRUCache<string, Entry>({ max: WORKSPACES_MAX });

  constructor(private readonly options: WorkspaceIndexOptions) {}

  /** @throws why there is none, where the first look failed */
  async get(key: string, { look, isLive }: Look): Promise<IndexedFiles & { stale: boolean; isKnown: boolean }> {
    const entry = this.entries.get(key) ?? { foundAtMs: -Infinity, askedAtMs: -Infinity };
    this.entries.set(key, entry);
    const age = this.options.now() - entry.foundAtMs;
    const wants = isLive ? age > FRESH_MS : age > STALE_MS && this.mayLook(entry);
    if (wants) this.start(key, entry, look);
    const isFirst = !entry.found;
    if (entry.look && (isFirst || isLive)) await within(isFirst ? FIRST_WAIT_MS : WAIT_MS, entry.look);
    const { found } = entry;
    const stale = this.options.now() - entry.foundAtMs > STALE_MS;
    return found ? { ...found, stale, isKnown: true } : { ...NOTHING, stale: true, isKnown: false };
  }

  private mayLook({ askedAtMs }: Entry): boolean {
    return this.options.now() - askedAtMs > LOOK_EVERY_MS;
  }

  private start(key: string, entry: Entry, look: () => Promise<IndexedFiles>): void {
    if (entry.look) return;
    const beganAtMs = this.options.now();
    entry.askedAtMs = beganAtMs;
    entry.look = look()
      .then((found) => {
        entry.found = found;
        entry.foundAtMs = beganAtMs;
      })
      .catch((error: unknown) => {
        this.options.onFailure(key, error);
        if (!entry.found) throw error;
      })
      .finally(() => (entry.look = undefined));
    entry.look.catch(() => undefined); // told to whoever waits, and to the log
  }
}

async function within(limitMs: number, work: Promise<void>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, limitMs);
  });
  await Promise.race([work, late]).finally(() => clearTimeout(timer));
}
