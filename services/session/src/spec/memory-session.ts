import type { Principal, StoredEvent } from '@margay/contracts';
import { MemoryBlobStore, MemoryCommitStore, type Command, type Head } from '@margay/log';
import { createLogger } from '@margay/platform';
import { SessionLog } from '../commits/session-log';
import type { SessionConfig } from '../config';
import { RunnerPools } from '../dispatch/runner-pools';
import { ModelsService } from '../projects/models.service';
import { ProjectsService, type ProjectsPorts } from '../projects/projects.service';
import type { RunRequestPorts } from '../sessions/run-request';

const logger = createLogger({ service: 'spec', level: 'off' });
const ignore = (): void => undefined;
const observer = { inserted: ignore, conflicted: ignore, unknownOutcome: ignore, fenced: ignore };

/** One session in memory, without its projections. */
export class MemorySession {
  readonly id = 'a'.repeat(32);
  readonly owner: Principal = { v: 1, iss: 'gateway', tenantId: 'tenant', principal: 'user', role: 'member', scopes: null }; // prettier-ignore
  readonly store = new MemoryCommitStore();
  readonly log = new SessionLog(this.store, new MemoryBlobStore(), observer, logger);
  projects: SessionConfig['MARGAY_PROJECTS'] = {};
  /** Whenever a run was looked at. */
  classed = (): Promise<void> => Promise.resolve();
  worktrees: ProjectsPorts['worktrees'] = {
    find: () => Promise.resolve(undefined),
    list: () => Promise.resolve([]),
    enter: () => Promise.resolve(false),
  };
  /** Model of runs that name none; undefined: none can be started. */
  model: string | undefined = 'model';

  get runPorts(): RunRequestPorts {
    const { model } = this;
    const models = new ModelsService({ MARGAY_MODEL: model, OPENAI_BASE_URL: undefined, OPENAI_API_KEY: undefined }, logger); // prettier-ignore
    const config = { MARGAY_PROJECTS: this.projects, MARGAY_ALLOW_EXTERNAL_CWD: false };
    const projects = new ProjectsService(config, {
      managed: {
        find: () => Promise.resolve(undefined),
        list: () => Promise.resolve([]),
        classOf: () => Promise.resolve(undefined),
      },
      worktrees: this.worktrees,
      repositories: { of: () => Promise.resolve(new Map()) },
    });
    const classes = { of: () => this.classed().then(() => 'default') };
    return {
      models,
      projects,
      classes,
      isolation: { unusual: undefined },
      pools: new RunnerPools('default'),
      stepBudget: 0,
    };
  }

  async submit(command: Command): Promise<Head> {
    const outcome = await this.log.submit(this.id, command);
    if (!outcome.ok) throw new Error(`${command.kind}: ${outcome.rejection.reason}`);
    return outcome.head;
  }

  async head(): Promise<Head> {
    return (await this.log.confirmedTip(this.id)).head;
  }

  /** The queued run gets an owner. */
  async claim(): Promise<{ runId: string; epoch: number }> {
    const { run, epoch } = await this.head();
    const runId = run?.id ?? '';
    await this.submit({ kind: 'claim', commitId: `claim ${runId} ${epoch}`, runId, epoch, owner: 'runner' });
    return { runId, epoch: epoch + 1 };
  }

  /** Ends the queued run with an answer. */
  async finish(): Promise<void> {
    const run = await this.claim();
    const completion = { done: true, done_reason: 'completed' };
    const what = { events: [], records: [], text: 'answer', completion };
    await this.submit({ kind: 'finish', commitId: `finish ${run.runId}`, ...run, ...what });
  }

  /** Stored events of a type that readers see. */
  async events(type: string): Promise<StoredEvent[]> {
    const { cuts } = await this.head();
    const found: StoredEvent[] = [];
    for await (const { events } of this.store.range(this.id, 1))
      for (const { seq, frame } of events) {
        const event = JSON.parse(frame) as StoredEvent;
        if (event.type === type && !cuts.some(([from, to]) => from <= seq && seq <= to)) found.push(event);
      }
    return found;
  }
}
