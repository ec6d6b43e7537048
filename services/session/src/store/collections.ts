import type { Db } from 'mongodb';
import { AccessRepository } from '../access/access.repository';
import { AttachmentRepository } from '../attachments/attachment.repository';
import { MongoBlobStore } from '../commits/mongo-blob-store';
import { MongoCommitStore } from '../commits/mongo-commit-store';
import { ReplicaRepository } from '../dispatch/replica.repository';
import { RunRepository } from '../dispatch/run.repository';
import { RunnerRepository } from '../dispatch/runner.repository';
import { SessionRepository } from '../effects/session.repository';
import { EgressPolicyRepository } from '../egress-policies/egress-policy.repository';
import { LeaseRepository } from '@margay/platform';
import type { ObjectStore } from '@margay/platform/files';
import { ManagedProjectRepository } from '../projects/managed-project.repository';
import { WorktreeRepository } from '../projects/worktree.repository';
import { QuestionRepository } from '../questions/question.repository';
import { DataKeyRepository } from '../secrets/data-key.repository';
import { SecretRepository } from '../secrets/secret.repository';
import { ForkRepository } from '../sessions/fork.repository';
import { TagRepository } from '../sessions/tag.repository';
import { InstanceRepository } from '../versions/instance.repository';

/** The rows beside the logs. */
export interface Rows {
  sessions: SessionRepository;
  runs: RunRepository;
  runners: RunnerRepository;
  replicas: ReplicaRepository;
  instances: InstanceRepository;
  questions: QuestionRepository;
  tags: TagRepository;
  forks: ForkRepository;
  access: AccessRepository;
  attachments: AttachmentRepository;
  projects: ManagedProjectRepository;
  worktrees: WorktreeRepository;
  secrets: SecretRepository;
  dataKeys: DataKeyRepository;
  egressPolicies: EgressPolicyRepository;
}

export interface Collections {
  store: MongoCommitStore;
  blobs: MongoBlobStore;
  leases: LeaseRepository;
  rows: Rows;
}

export interface CollectionsOptions {
  /** Random per process start. */
  instance: string;
  /** Of this build. */
  version?: string;
  /** Where bytes of blobs go, if not into GridFS. */
  objects?: ObjectStore | undefined;
}

/** Everything that session keeps, with its indexes. */
export async function openCollections(db: Db, options: CollectionsOptions): Promise<Collections> {
  const { instance, version, objects } = options;
  const blobs = new MongoBlobStore(db, objects);
  const store = new MongoCommitStore(db.collection('commits'), db.collection('sessions'), blobs);
  const rows: Rows = {
    sessions: new SessionRepository(db.collection('sessions')),
    runs: new RunRepository(db.collection('runs')),
    runners: new RunnerRepository(db.collection('runners'), instance),
    instances: new InstanceRepository(db.collection('instances')),
    replicas: new ReplicaRepository(db.collection('instances'), instance, version),
    questions: new QuestionRepository(db.collection('questions')),
    tags: new TagRepository(db.collection('tags')),
    forks: new ForkRepository(db.collection('forks')),
    access: new AccessRepository(db.collection('tenants'), db.collection('members'), db.collection('keys')),
    attachments: new AttachmentRepository(db.collection('attachments')),
    projects: new ManagedProjectRepository(db.collection('projects')),
    worktrees: new WorktreeRepository(db.collection('worktrees')),
    secrets: new SecretRepository(db.collection('secrets')),
    dataKeys: new DataKeyRepository(db.collection('tenants')),
    egressPolicies: new EgressPolicyRepository(db.collection('egressPolicies')),
  };
  const { sessions, runs, access, tags, forks, attachments, projects, worktrees, secrets } = rows;
  for (const owner of [store, blobs, sessions, runs, access, tags, forks, attachments, projects, worktrees, secrets])
    await owner.createIndexes();
  return { store, blobs, leases: new LeaseRepository(db.collection('leases'), instance), rows };
}
