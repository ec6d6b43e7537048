import { UnavailableError } from '@margay/errors';
import type { KeyRing, Logger, ManagementServer } from '@margay/platform';
import type { BeforeApplicationShutdown, OnApplicationBootstrap } from '@nestjs/common';
import { AttachClient } from './attach/attach-client';
import { StallGuard } from './attach/stall-guard';
import type { AgentRunnerConfig } from './config';
import { Isolation } from './isolated/isolation';
import { RunHost } from './runs/run-host';
import { runnerPorts } from './runner-ports';

export interface RunnerContext {
  config: AgentRunnerConfig;
  /** Of this process: runs in processes of their own get their part of it. */
  environment: NodeJS.ProcessEnv;
  /** Script that this process was started with, started again for each such run. */
  entry: string;
  keys: KeyRing;
  logger: Logger;
  management: ManagementServer;
  instance: string;
  version: string;
  /** Until then it attaches to no session replica, which may be older than what it would say. */
  isItsTurn: () => boolean;
}

/** The agent-runner: takes runs, drives them, hands them back. */
export class RunnerApplication implements OnApplicationBootstrap, BeforeApplicationShutdown {
  private stop?: () => Promise<void>;

  constructor(private readonly context: RunnerContext) {}

  onApplicationBootstrap(): void {
    const { config, keys, logger, management, instance, version, isItsTurn } = this.context;
    const { ports, close } = runnerPorts({ config, keys, logger, registry: management.registry });
    const slots = config.MARGAY_RUNNER_SLOTS;
    const isolation = this.isolation((outcome) => ports.metrics.isolatedEnded(outcome));
    const host = new RunHost({
      slots,
      logger,
      ports: { ...ports, onOpenSettled: (run) => guard.settled(run) },
      isolate: (life) => isolation.isolate(life),
      onChanged: () => attach.heartbeat(),
    });
    const guard = new StallGuard(host);
    const attach = new AttachClient({
      client: ports.runners,
      host: guard,
      instance,
      pool: config.MARGAY_POOL,
      slots,
      version,
      mayAttach: isItsTurn,
      heartbeatMs: config.MARGAY_HEARTBEAT_SECONDS * 1_000,
      logger,
    });
    const removals = [
      management.registerCheck('agent-runner.attached', 'ready', () => {
        if (!attach.isAttached) throw notAttached();
      }),
      management.registerCheck('agent-runner.runs', 'ready', () => guard.checkReady()),
      management.registerCheck('agent-runner.runs', 'live', () => guard.checkLive()),
    ];
    attach.start();
    this.stop = async () => {
      for (const remove of removals) remove();
      const drained = host.drain();
      // No slot is free from here on: tell it before runs are handed over, or they come back.
      attach.heartbeat();
      await drained;
      attach.drained();
      await attach.close();
      close();
    };
  }

  async beforeApplicationShutdown(): Promise<void> {
    await this.stop?.();
  }

  private isolation(onEnded: (outcome: string) => void): Isolation {
    const { config, environment, entry, instance } = this.context;
    return new Isolation({
      entry,
      environment,
      instance,
      onEnded,
      heapMb: config.MARGAY_ISOLATED_HEAP_MB,
      places: config.MARGAY_ISOLATED_RUNS,
    });
  }
}

function notAttached(): Error {
  return new UnavailableError('not_attached', 'no session replica answers this runner; check MARGAY_SESSION_URL');
}
