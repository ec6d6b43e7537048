import type { executorPb } from '@margay/contracts';
import type { CommitDocument, Effect, Head } from '@margay/log';
import { systemPrincipal, type GrpcClient, type Logger } from '@margay/platform';
import type { MongoCommitStore } from '../commits/mongo-commit-store';
import { rowOfRun, type RunRepository } from '../dispatch/run.repository';
import type { QuestionRepository } from '../questions/question.repository';
import { parseWorktreeId } from '../projects/worktree-id';
import type { WorktreeRepository } from '../projects/worktree.repository';
import { projectsOf, type SessionRepository } from './session.repository';

/** How long the fence of a sandbox may take before it is left to the janitor. */
const FENCE_TIMEOUT_MS = 1_000;
const RELEASE_TIMEOUT_MS = 10_000;

export interface EffectsPorts {
  store: MongoCommitStore;
  sessions: SessionRepository;
  runs: RunRepository;
  questions: QuestionRepository;
  worktrees: Pick<WorktreeRepository, 'mayBeIdle'>;
  executor: GrpcClient<typeof executorPb.ExecutorDefinition>;
  logger: Logger;
}

/** Applies what a commit owes to other documents and services. Idempotent, in any order, as often as you like. */
export class EffectsService {
  private readonly inFlight = new Map<string, Promise<boolean>>();

  constructor(private readonly ports: EffectsPorts) {}

  /**
   * Applies all effects and clears the mark; what fails stays marked for the janitor. Never rejects.
   * @returns whether all are applied
   */
  apply(document: CommitDocument): Promise<boolean> {
    if (document.effects.length === 0) return Promise.resolve(true);
    const applied = this.applyAll(document).finally(() => this.inFlight.delete(document._id));
    this.inFlight.set(document._id, applied);
    return applied;
  }

  /** A command was found stored: whoever stored it may have died before it applied what it owed. Never rejects. */
  async redo(sessionId: string, c: number): Promise<void> {
    try {
      const document = await this.ports.store.readNumber(sessionId, c);
      if (document && document.effectsDueAt !== null) await this.apply(document);
    } catch (error) {
      this.ports.logger.warn({ err: error, sessionId, c }, 'effects are left to the janitor');
    }
  }

  /** Waits until the effects of a commit that this replica is applying were tried. */
  async settled(commitKey: string): Promise<void> {
    await this.inFlight.get(commitKey);
  }

  /** Waits until everything that is being applied was tried. */
  async idle(): Promise<void> {
    await Promise.all(this.inFlight.values());
  }

  private async applyAll(document: CommitDocument): Promise<boolean> {
    try {
      await Promise.all(document.effects.map((effect) => this.applyOne(document, effect)));
      await this.ports.store.clearEffectsMark(document._id);
      return true;
    } catch (error) {
      this.ports.logger.warn(
        { err: error, sessionId: document.sessionId, c: document.c },
        'effects are left to the janitor',
      );
      return false;
    }
  }

  private async applyOne(document: CommitDocument, effect: Effect): Promise<void> {
    switch (effect.kind) {
      case 'session':
        await this.ports.sessions.project(document.head);
        if (document.head.terminated) await this.ended(document);
        return;
      case 'run':
        return this.ports.runs.project(rowOfRun(document.head, effect.runId, effect.epoch));
      case 'leave':
        return this.release(document, effect.epoch);
      case 'fence':
        return this.fence(document, effect);
      case 'question':
        return this.ports.questions.add(document, effect);
    }
  }

  /** A session that is over needs no sandbox; its workspace stays, unless it was the last one in a worktree. */
  private async ended(document: CommitDocument): Promise<void> {
    const { tenantId, head } = document;
    await this.release(document);
    for (const project of projectsOf(head).filter((name) => parseWorktreeId(name)))
      await this.ports.worktrees.mayBeIdle(tenantId, project, new Date());
  }

  /** @param upToEpoch a sandbox that a later owner got is none of ours any more */
  private async release({ sessionId, tenantId }: CommitDocument, upToEpoch?: number): Promise<void> {
    const principal = systemPrincipal('session', tenantId);
    await this.ports.executor.release({ sessionId, upToEpoch }, { principal, timeoutMs: RELEASE_TIMEOUT_MS });
  }

  private async fence(document: CommitDocument, effect: Effect & { kind: 'fence' }): Promise<void> {
    const { sessionId, tenantId } = document;
    const background = effect.kill && isStopped(document.head, effect.runId);
    await this.ports.executor.fenceSession(
      { sessionId, epoch: effect.epoch, kill: effect.kill, background },
      { principal: systemPrincipal('session', tenantId), timeoutMs: FENCE_TIMEOUT_MS },
    );
  }
}

/** Somebody wanted the run to stop: what it left in the background is not wanted either. A run that ends leaves it. */
function isStopped({ terminated, lastRun }: Head, runId: string): boolean {
  return terminated !== null || (lastRun?.id === runId && lastRun.doneReason === 'canceled');
}
