import type { Principal, sessionsPb } from '@margay/contracts';
import { PermissionDeniedError } from '@margay/errors';
import type { GrpcHandlers } from '@margay/platform';
import type { BindingService } from '../binding/binding.service';
import type { AttachmentsService } from '../attachments/attachments.service';
import { mayAccess, requireAccess, seesAllSessions } from '../access/access-rules';
import type { MongoBlobStore } from '../commits/mongo-blob-store';
import type { MongoCommitStore } from '../commits/mongo-commit-store';
import type { SessionLog } from '../commits/session-log';
import type { SessionRepository } from '../effects/session.repository';
import type { QueuePositions } from '../dispatch/queue-positions';
import type { FilesService } from '../projects/files.service';
import type { ManagedProjects } from '../projects/managed-projects';
import type { ModelsService } from '../projects/models.service';
import type { ProjectsService } from '../projects/projects.service';
import { parseWorktreeId } from '../projects/worktree-id';
import type { WorktreesService } from '../projects/worktrees.service';
import type { QuestionsService } from '../questions/questions.service';
import type { RecoveryService } from './recovery.service';
import { verifySession } from '../upkeep/verify';
import type { ForkService } from './fork.service';
import { replay } from './replay';
import { stateMessage, summaryOfHead, summaryOfRow } from './session.mapper';
import type { SessionsService } from './sessions.service';

export interface SessionsGrpcPorts {
  sessions: SessionsService;
  recovery: RecoveryService;
  questions: QuestionsService;
  log: SessionLog;
  store: MongoCommitStore;
  blobs: MongoBlobStore;
  fork: ForkService;
  rows: SessionRepository;
  projects: ProjectsService;
  managed: ManagedProjects;
  models: ModelsService;
  positions: QueuePositions;
  attachments: AttachmentsService;
  files: FilesService;
  worktrees: WorktreesService;
  binding: BindingService;
}

/** Lists end here, with or without a limit: more is paged. A message of 8 MB holds so many of the largest heads. */
const LIST_MAX = 1_000;
const PROBE_MAX = 1_000;

export function sessionsHandlers(ports: SessionsGrpcPorts): GrpcHandlers<typeof sessionsPb.SessionsDefinition> {
  const { sessions, log, positions } = ports;
  return {
    createSession: (request, context) => sessions.create(context.principal(), request),
    acceptRun: (request, context) => sessions.accept(context.principal(), request),
    sendMessage: (request, context) => sessions.message(context.principal(), request),
    interruptRun: (request, context) => sessions.interrupt(context.principal(), request),
    cancelRun: (request, context) => sessions.cancel(context.principal(), request),
    recoverSession: (request, context) => ports.recovery.recover(context.principal(), request),
    answerQuestion: (request, context) => ports.questions.answer(context.principal(), request),
    forkSession: (request, context) => ports.fork.fork(context.principal(), request),
    async verifySession({ sessionId }, context) {
      const row = await ports.rows.find(sessionId);
      // A log that can't be read is to be told of, too.
      if (!row || row.isDead || !mayAccess(context.principal(), row))
        await sessions.confirmedHead(context.principal(), sessionId);
      const { commits, headHash, fault } = await verifySession({ ...ports, signal: context.signal }, sessionId);
      return { ok: !fault, commits, headHash, firstBad: fault?.c ?? 0, problem: fault?.problem ?? '' };
    },
    terminateSession: ({ sessionId }, context) => sessions.terminate(context.principal(), sessionId),
    async getSession({ sessionId }, context) {
      const head = await sessions.confirmedHead(context.principal(), sessionId);
      return { summaryJson: JSON.stringify(summaryOfHead(head, await positions.ofHead(head))) };
    },
    async getState({ sessionId }, context) {
      const head = await sessions.confirmedHead(context.principal(), sessionId);
      return { state: stateMessage(head, await positions.ofHead(head)) };
    },
    async listSessions({ projects, sessionIds, pinned, limit, offset, tag }, context) {
      // Nothing can be pinned yet, so `pinned=true` finds nothing.
      if (pinned === true || limit === 0) return { summariesJson: [] };
      const principal = context.principal();
      if (tag !== undefined) {
        const head = await sessions.findTagged(principal, tag);
        return { summariesJson: head ? [JSON.stringify(summaryOfHead(head, await positions.ofHead(head)))] : [] };
      }
      // Rows know projects by the names that bindings give them.
      const { tenantId } = principal;
      const named = projects.map(async (name) => (await ports.projects.find(tenantId, name)) ?? name);
      const rows = await ports.rows.list({
        ...ownOnly(principal),
        tenantId,
        projects: await Promise.all(named),
        sessionIds: sessionIds.slice(0, LIST_MAX),
        limit: Math.min(limit ?? LIST_MAX, LIST_MAX),
        offset,
      });
      const places = rows.some(({ isRunning }) => isRunning) ? await positions.ofSessions() : undefined;
      return { summariesJson: rows.map((row) => JSON.stringify(summaryOfRow(row, places?.get(row._id)))) };
    },
    readCommits: (request, context) => replay(log, context.principal(), request, positions),
    async probeCommits({ probes }, context) {
      if (context.principal().principal !== 'system:gateway')
        throw new PermissionDeniedError('gateway_only', 'only the gateway probes sessions');
      return { sessionIds: await ports.store.existing(probes.slice(0, PROBE_MAX)) };
    },
    async *readBlob({ sessionId, blobId, offset, length }, context) {
      const { tenantId } = context.principal();
      requireAccess(context.principal(), await log.recentHead(sessionId));
      const totalBytes = await ports.blobs.size(tenantId, blobId);
      const end = length === 0 ? totalBytes : Math.min(totalBytes, offset + length);
      yield { totalBytes, chunk: Buffer.alloc(0) };
      if (offset >= end) return;
      for await (const chunk of ports.blobs.read(tenantId, blobId, offset, end)) yield { totalBytes: 0, chunk };
    },
    async addAttachment(request, context) {
      return { attachmentJson: JSON.stringify(await ports.attachments.add(context.principal(), request)) };
    },
    listFiles: (request, context) => ports.files.list(context.principal(), request),
    getSpec: ({ sessionId }, context) => ports.binding.spec(context.principal(), sessionId),
    bindProject: (request, context) => ports.binding.bind(context.principal(), request),
    listWorktrees: ({ project }, context) => ports.worktrees.list(context.principal(), project),
    createWorktree: (request, context) => ports.worktrees.create(context.principal(), request),
    deleteWorktree: (request, context) => ports.worktrees.delete(context.principal(), request),
    listBranches: ({ project }, context) => ports.files.branches(context.principal(), project),
    async listProjects(_, context) {
      const { tenantId } = context.principal();
      return { projectsJson: (await ports.projects.list(tenantId)).map((project) => JSON.stringify(project)) };
    },
    async createProject(request, context) {
      const { project, replayed } = await ports.managed.create(context.principal(), request);
      return { projectJson: JSON.stringify(project), replayed };
    },
    async getProject({ projectId }, context) {
      const owner = parseWorktreeId(projectId) ? ports.worktrees : ports.managed;
      return { projectJson: JSON.stringify(await owner.get(context.principal(), projectId)) };
    },
    async updateProject(request, context) {
      return { projectJson: JSON.stringify(await ports.managed.update(context.principal(), request)) };
    },
    async deleteProject({ projectId }, context) {
      await ports.managed.delete(context.principal(), projectId);
      return {};
    },
    async listModels() {
      const models = await ports.models.list();
      const capabilities = Object.fromEntries(models.map((model) => [model, { supports_vision: false }]));
      return { models, defaultModel: ports.models.defaultModel ?? '', capabilitiesJson: JSON.stringify(capabilities) };
    },
  };
}

function ownOnly(principal: Principal): { owner?: string } {
  return seesAllSessions(principal) ? {} : { owner: principal.principal };
}
