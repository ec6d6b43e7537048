import { LeasedSweep, type LeaseRepository, type Logger, type Sweep } from '@margay/platform';
import type { Db } from 'mongodb';
import type { AttachmentRepository } from '../attachments/attachment.repository';
import type { MongoBlobStore } from '../commits/mongo-blob-store';
import type { MongoCommitStore } from '../commits/mongo-commit-store';
import type { SessionLog } from '../commits/session-log';
import type { RunRow } from '../dispatch/run.repository';
import type { RunnerRepository } from '../dispatch/runner.repository';
import type { EffectsService } from '../effects/effects.service';
import { effectsSweep } from '../effects/effects-sweep';
import type { SessionRepository } from '../effects/session.repository';
import type { ForkRepository } from '../sessions/fork.repository';
import type { ForkService } from '../sessions/fork.service';
import type { TagRepository } from '../sessions/tag.repository';
import { forkSweep } from './fork-sweep';
import { projectionsIn, tellLost } from './projections';
import { logSweep, queueSweep, runnerSweep } from './queue-sweeps';
import { blobSweep } from './blob-sweep';
import { tagSweep } from './tag-sweep';

export interface UpkeepPorts {
  db: Db;
  store: MongoCommitStore;
  blobs: MongoBlobStore;
  log: SessionLog;
  effects: EffectsService;
  sessions: SessionRepository;
  runners: RunnerRepository;
  attachments: AttachmentRepository;
  tags: TagRepository;
  forks: ForkRepository;
  forkService: ForkService;
  leases: LeaseRepository;
  logger: Logger;
  onEffectsLag: (seconds: number) => void;
  onRepaired: (sweep: string, count: number) => void;
}

/** The janitors: each kind of repair is done by one replica at a time. */
export class Upkeep {
  private readonly sweeps: LeasedSweep[];

  /** @param others sweeps of other parts, e.g. what has come due */
  constructor(ports: UpkeepPorts, others: Sweep[] = []) {
    const { logger, leases, onRepaired } = ports;
    this.sweeps = [...sweepsOf(ports), ...others].map(
      (sweep) => new LeasedSweep(sweep, { leases, logger, onRepaired }),
    );
  }

  start(): void {
    for (const sweep of this.sweeps) sweep.start();
  }

  /** Resolves once all batches under way are over and all leases free. */
  async stop(): Promise<void> {
    await Promise.all(this.sweeps.map((sweep) => sweep.stop()));
  }
}

function sweepsOf(ports: UpkeepPorts): Sweep[] {
  const { db, store, blobs, log, effects, sessions, runners, tags, forks, forkService: service } = ports;
  const projections = projectionsIn(db, tellLost(ports.logger));
  const runs = db.collection<RunRow>('runs');
  return [
    effectsSweep({ store, effects, onLag: ports.onEffectsLag }),
    queueSweep({ store, projections, sessions, runs }),
    logSweep({ store, projections, onHalfMade: (sessionId, tenantId) => forks.adopt(sessionId, tenantId) }),
    runnerSweep(runners, runs),
    tagSweep({ log, tags, forks }),
    forkSweep({ store, sessions, forks, service }),
    blobSweep({ blobs, users: [store, ports.attachments] }),
  ];
}
