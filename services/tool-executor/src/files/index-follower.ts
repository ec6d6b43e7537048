import { isMargayError } from '@margay/errors';
import type { Logger } from '@margay/platform';
import { pause } from '@margay/toolbox';
import { workspaceIdOf } from '../driver/workspace-key';
import type { LiveSandbox } from '../sandbox/sandbox-claims';
import type { IndexPlace } from './index-store';
import type { WorkspaceIndex } from './workspace-index';

export interface IndexFollowerOptions {
  index: Pick<WorkspaceIndex, 'save' | 'confirm'>;
  tokenFor: (sandbox: LiveSandbox) => Promise<string>;
  /** Whether it is still the sandbox of its session. */
  isLive: (sandbox: LiveSandbox) => boolean;
  /** Told how full a workspace is, now and then. */
  onSpace?: ((sandbox: LiveSandbox, percent: number) => void) | undefined;
  now: () => number;
  logger: Logger;
}

/** The first calls come first. */
const START_AFTER_MS = 500;
const AGAIN_MS = 5_000;
/** Looks end within this, whatever a sandbox says. */
const AGE_MAX_MS = 60_000;

/** Keeps the index of each workspace in which a sandbox runs. */
export class IndexFollower {
  private readonly closing = new AbortController();
  private readonly followed = new Set<LiveSandbox>();

  constructor(private readonly options: IndexFollowerOptions) {}

  follow(sandbox: LiveSandbox): void {
    if (this.followed.has(sandbox)) return;
    this.followed.add(sandbox);
    void this.toItsEnd(sandbox).finally(() => this.followed.delete(sandbox));
  }

  close(): void {
    this.closing.abort();
  }

  private async toItsEnd(sandbox: LiveSandbox): Promise<void> {
    const { logger, isLive } = this.options;
    const { signal } = this.closing;
    for (let waitMs = START_AFTER_MS; ; waitMs = AGAIN_MS) {
      await pause(waitMs, signal);
      if (signal.aborted || !isLive(sandbox)) return;
      try {
        await this.hear(sandbox, signal);
      } catch (error) {
        // One of an earlier version cannot be watched; it is looked into when somebody asks.
        if (isMargayError(error) && error.code === 'UNIMPLEMENTED') return;
        logger.debug({ sandboxId: sandbox.ref.sandboxId, err: error }, 'the watch on a workspace ended');
      }
    }
  }

  private async hear(sandbox: LiveSandbox, signal: AbortSignal): Promise<void> {
    const { index, tokenFor, now, onSpace } = this.options;
    const place = placeOf(sandbox);
    const grant = await tokenFor(sandbox);
    for await (const message of sandbox.connection.client.watchIndex({}, { grant, signal })) {
      const { index: found, ageMs, workspacePercent } = message;
      if (workspacePercent !== undefined) onSpace?.(sandbox, workspacePercent);
      // A look that somebody began later, and whose result came sooner, is the later one.
      if (found) await index.save(place, found, now() - Math.min(ageMs, AGE_MAX_MS));
      else await index.confirm(place);
    }
  }
}

function placeOf({ ref, workspaceKey }: LiveSandbox): IndexPlace {
  return { tenantId: ref.tenantId, workspaceId: workspaceIdOf(ref.tenantId, workspaceKey) };
}
