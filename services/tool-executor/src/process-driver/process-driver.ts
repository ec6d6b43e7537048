import path from 'node:path';
import { USUAL_SANDBOX_CLASS } from '@margay/contracts';
import { isLowerEpoch } from '../driver/epoch';
import {
  classOf,
  SandboxDriver,
  type Claim,
  type ClaimRequest,
  type Isolation,
  type LostListener,
  type PoolState,
  type ReleaseOptions,
  type SandboxEndpoint,
  type SandboxRef,
} from '../driver/sandbox-driver';
import { Cgroups } from './cgroups';
import { daemonEnvironment, hostPaths, INSIDE_PATHS, mountsOf } from './daemon-environment';
import { authorityOf, cacheFolderOf, fingerprintOf, programOf, type ProcessDriverOptions } from './driver-options';
import { detectIsolation, type Detected } from './detect-isolation';
import { EgressDoors } from './egress-doors';
import { removeStages, type Launched } from './launcher';
import { ProcessInventory } from './process-inventory';
import { ProcessLedger } from './process-ledger';
import { activeUids, areGone, identityOf, isAlive, killAll, killUser } from './processes';
import { SandboxFolder, sandboxIdOf, shortName, type User } from './sandbox-folder';
import { SandboxRecords, type SandboxRecord } from './sandbox-records';
import { isStrict, limitsOf, STRICT_CLASS } from './strict-class';
import { refuseForeign } from './tenants';
import { Turns } from './turns';
import { chooseUid, isOwnUid } from './users';
import { folderId, Workspaces, type Workspace } from './workspaces';

const NODE_FLAGS = ['--max-semi-space-size=2', '--max-old-space-size=192'];
/** The daemon ends its own processes within two seconds. */
const STOP_WAIT_MS = 3_000;

/** Sandboxes as process trees of this machine (cluster §1.7). */
export class ProcessDriver extends SandboxDriver {
  readonly ledger: ProcessLedger;
  readonly inventory: ProcessInventory;
  private readonly listeners = new Set<LostListener>();
  private readonly turns = new Turns();
  /** Sandboxes whose end is meant. */
  private readonly ending = new Set<string>();
  /** Sandboxes that a daemon was armed in, see `faultPoints`. */
  private readonly armed = new Set<string>();
  private readonly workspaces: Workspaces;
  private readonly doors: EgressDoors;

  private constructor(
    private readonly options: ProcessDriverOptions,
    private readonly parts: {
      detected: Detected;
      records: SandboxRecords;
      cgroups: Cgroups;
      sockets: { base: string; remove: () => Promise<void> };
      isRoot: boolean;
    },
  ) {
    super();
    this.ledger = new ProcessLedger(parts.records);
    this.inventory = new ProcessInventory(options.home, parts.records);
    this.workspaces = new Workspaces({ home: options.home, isRoot: parts.isRoot });
    // Without a network of its own, a sandbox needs no way out, and could not be kept from going others.
    const egressSocket = this.isolation === 'bwrap' ? options.egressSocket : undefined;
    this.doors = new EgressDoors(egressSocket, parts.sockets.base);
  }

  /** Finds out what this machine can do, then keeps what an earlier life left running and ends what it cannot use. */
  static async open(options: ProcessDriverOptions): Promise<ProcessDriver> {
    const isRoot = process.getuid?.() === 0;
    const base = path.join(options.home, 'sandboxes');
    const records = await SandboxRecords.open(base);
    const cacheFolder = cacheFolderOf(options);
    const detected = await detectIsolation({ ...options, isRoot, cacheFolder });
    const cgroups = isRoot && detected.isolation === 'bwrap' ? await Cgroups.detect() : new Cgroups();
    await removeStages();
    const driver = new ProcessDriver(options, { detected, records, cgroups, sockets: await shortName(base), isRoot });
    await driver.adopt();
    await records.collect(Date.now());
    return driver;
  }

  get isolation(): Isolation {
    return this.parts.detected.isolation;
  }

  /** Without a network of its own, no sandbox could be kept from going out. */
  get classes(): readonly string[] {
    return this.isolation === 'bwrap' ? [USUAL_SANDBOX_CLASS, STRICT_CLASS] : [USUAL_SANDBOX_CLASS];
  }

  /** Why it is not better; undefined with bubblewrap. */
  get warning(): string | undefined {
    return this.parts.detected.warning;
  }

  /** Sandboxes start within moments, so none waits for a session. */
  async ensurePool(): Promise<PoolState> {
    return { warm: 0, warming: 0, failing: 0 };
  }

  async claim(request: ClaimRequest): Promise<Claim> {
    const sandboxId = sandboxIdOf(request.sessionId);
    const ref = await this.turns.take(sandboxId, () => this.start(sandboxId, request));
    return { ref, path: 'cold' };
  }

  resume(request: ClaimRequest): Promise<Claim> {
    return this.claim(request);
  }

  async suspend(ref: SandboxRef, reason: string): Promise<{ snapshotId?: string }> {
    await this.release(ref, { reason, forget: 'nothing' });
    return {};
  }

  async endpoint({ sandboxId }: SandboxRef): Promise<SandboxEndpoint> {
    return { address: `unix:${path.join(this.parts.sockets.base, sandboxId, 'run', 's')}`, audience: sandboxId };
  }

  release(ref: SandboxRef, { reason, forget }: ReleaseOptions): Promise<void> {
    const { sandboxId, sessionId } = ref;
    this.ending.add(sandboxId);
    return this.turns
      .take(sandboxId, async () => {
        const record = this.parts.records.find(sandboxId);
        if (!record || record.tenantId !== ref.tenantId) return;
        await this.end(record, STOP_WAIT_MS);
        if (forget === 'everything') await this.folderOf(sandboxId).forget();
        if (forget === 'journal') await this.folderOf(sandboxId).forgetJournal();
        this.options.logger.info({ sandboxId, sessionId, reason }, 'sandbox ended');
      })
      .finally(() => this.ending.delete(sandboxId));
  }

  onLost(listener: LostListener): void {
    this.listeners.add(listener);
  }

  /** Lets go of the short socket names; sandboxes have been released before. */
  async close(): Promise<void> {
    await this.turns.idle();
    await this.doors.closeAll();
    await this.parts.sockets.remove();
  }

  private async start(sandboxId: string, request: ClaimRequest): Promise<SandboxRef> {
    const isShared = this.parts.isRoot && this.isolation === 'bwrap';
    refuseForeign(this.parts.records.all(), { sandboxId, tenantId: request.tenantId, isShared });
    const { tenantId, sessionId, sandboxClass } = request;
    const known = this.parts.records.find(sandboxId);
    const workspace = await this.workspaces.locate(request, this.parts.records.all());
    const isOfClass = known !== undefined && classOf(known) === classOf(request);
    if (isOfClass && (await this.isUsable(known, workspace))) return { sandboxId, tenantId, sessionId };
    if (known) await this.end(known, 0);
    const user = await this.userFor(known, workspace);
    await this.workspaces.give(workspace, user);
    const minimum = known && isLowerEpoch(request.minimum, known) ? known : request.minimum;
    const record: SandboxRecord = {
      sandboxId,
      tenantId,
      sessionId,
      folder: workspace.folder,
      folderId: workspace.identities?.folder ?? (await folderId(workspace.folder)),
      ...repositoryOf(workspace),
      ...projectOf(request.workspace),
      ...(sandboxClass === undefined ? {} : { sandboxClass }),
      ...user,
      generation: minimum.generation,
      epoch: minimum.epoch,
      fingerprint: fingerprintOf(this.options, this.isolation),
      processes: [],
      lastUsedAt: Date.now(),
    };
    await this.parts.records.save(record);
    await this.watch(record, await this.launchAtLast(record, request.workspace.kind === 'path'));
    return { sandboxId, tenantId, sessionId };
  }

  /** What the daemon keeps lies within reach of commands: if it cannot start on that, it starts without. */
  private async launchAtLast(record: SandboxRecord, isInPlace: boolean): Promise<Launched> {
    const { sandboxId, sessionId } = record;
    const folder = this.folderOf(sandboxId);
    const hasWayOut = this.isolation === 'bwrap' && !isStrict(record);
    const authority = hasWayOut ? authorityOf(this.options) : undefined;
    const prepare = () => folder.prepare(record, this.options.trust, authority);
    await prepare();
    const launch = () => this.launch(record, folder, { isInPlace, hasAuthority: authority !== undefined });
    try {
      return await launch();
    } catch (error) {
      this.options.logger.warn(
        { sandboxId, sessionId, err: error },
        'sandbox did not start, trying without its journal',
      );
      await folder.forgetJournal();
      await prepare();
      return launch();
    }
  }

  private async launch(
    record: SandboxRecord,
    folder: SandboxFolder,
    { isInPlace, hasAuthority }: { isInPlace: boolean; hasAuthority: boolean },
  ): Promise<Launched> {
    const { cgroups, detected } = this.parts;
    const { memoryBytes, processes } = limitsOf(this.options, record);
    const isBoxed = this.isolation === 'bwrap';
    if (!isStrict(record)) await this.doors.open(record);
    const outside = new SandboxFolder(this.parts.sockets.base, record.sandboxId);
    const paths = isBoxed ? INSIDE_PATHS : hostPaths(outside, record.folder);
    const outsideWorld = { hasEgress: this.doors.isOpen && !isStrict(record), hasAuthority };
    // A limit on processes counts everything of a user, so it needs a user, or numbering, of the sandbox's own.
    const isAlone = isBoxed || isOwnUid(record.uid);
    return detected.launcher.launch({
      isolation: this.isolation,
      user: record,
      mounts: mountsOf(folder, record, cacheFolderOf(this.options), outsideWorld),
      // The workspace first: it may lie in the folder of another base.
      bases: [basisOf(record), folder.path, cacheFolderOf(this.options)],
      ...(isInPlace ? { hostPath: record.folder } : {}),
      environment: daemonEnvironment(record, paths, {
        isolation: this.isolation,
        idleExitMs: this.options.idleExitMs,
        memoryBytes,
        processes: isAlone ? processes : 0,
        isStrict: isStrict(record),
        ...outsideWorld,
        faultPoints: this.faultPointsOf(record.sandboxId),
      }),
      ...(this.isolation === 'uid' ? { program: programOf(this.options) } : {}),
      cgroups: await cgroups.create(record.sandboxId, { memoryBytes, processes }),
      logFile: folder.file('sandboxd.log'),
      nodeFlags: NODE_FLAGS,
      daemonArguments: [],
    });
  }

  private faultPointsOf(sandboxId: string): string | undefined {
    if (this.armed.has(sandboxId)) return undefined;
    this.armed.add(sandboxId);
    return this.options.faultPoints;
  }

  /** Remembers who runs, and notices when it ends. */
  private async watch(record: SandboxRecord, { child, pids }: Launched): Promise<void> {
    const identities = (await Promise.all(pids.map(identityOf))).filter((identity) => identity !== undefined);
    const running = { ...record, processes: identities };
    await this.parts.records.save(running);
    const onExit = (): void => {
      this.lost(running, `its process ended with ${child.signalCode ?? `code ${child.exitCode}`}`).catch(
        (error: unknown) =>
          this.options.logger.error(
            { sandboxId: record.sandboxId, err: error },
            'a lost sandbox could not be cleared away',
          ),
      );
    };
    child.once('exit', onExit);
    if (child.exitCode !== null) onExit();
  }

  private async lost(record: SandboxRecord, reason: string): Promise<void> {
    const { sandboxId } = record;
    const current = this.parts.records.find(sandboxId);
    const isOurs = current?.processes.some(({ pid }) => pid === record.processes[0]?.pid) ?? false;
    if (this.ending.has(sandboxId) || !isOurs) return;
    this.options.logger.warn({ sandboxId, sessionId: record.sessionId, reason }, 'sandbox lost');
    for (const listener of this.listeners) listener(record, 'process_ended');
    await this.turns.take(sandboxId, async () => {
      const left = this.parts.records.find(sandboxId);
      if (left?.processes.some(({ pid }) => pid === record.processes[0]?.pid)) await this.end(left, 0);
    });
  }

  /** Waits for the daemon to end by itself, then ends it. */
  private async end(record: SandboxRecord, waitMs: number): Promise<void> {
    const isGone = await areGone(record.processes, waitMs);
    if (!isGone) await killAll(record.processes);
    await this.doors.close(record.sandboxId);
    if (!isGone) await areGone(record.processes, STOP_WAIT_MS);
    // Without bubblewrap, commands outlive their daemon.
    if (this.isolation === 'uid' && this.isOnlyUser(record)) await killUser(record.uid);
    // The kernel takes its time with control groups; nobody but the next claim has to wait for that.
    this.turns
      .take(record.sandboxId, () => this.parts.cgroups.remove(record.sandboxId))
      .catch((error: unknown) =>
        this.options.logger.warn({ sandboxId: record.sandboxId, err: error }, 'a control group is left over'),
      );
    const current = this.parts.records.find(record.sandboxId) ?? record;
    await this.parts.records.save({ ...current, processes: [], lastUsedAt: Date.now() });
  }

  private isOnlyUser({ uid, sandboxId }: SandboxRecord): boolean {
    const others = this.parts.records.all().filter((record) => record.sandboxId !== sandboxId);
    return isOwnUid(uid) && !others.some((record) => record.uid === uid && record.processes.length > 0);
  }

  private async adopt(): Promise<void> {
    for (const record of this.parts.records.all()) {
      if (record.processes.length === 0) {
        // A crash may have come between the end of a sandbox and that of its groups.
        await this.parts.cgroups.remove(record.sandboxId);
        continue;
      }
      const isRunning = (await Promise.all(record.processes.map(isAlive))).every(Boolean);
      if (isRunning && record.fingerprint === fingerprintOf(this.options, this.isolation)) {
        if (!isStrict(record)) await this.doors.open(record);
        continue;
      }
      await this.end(record, 0);
    }
  }

  private async isUsable(record: SandboxRecord, workspace: Workspace): Promise<boolean> {
    if (record.processes.length === 0 || record.folder !== workspace.folder) return false;
    if (!(await this.ledger.isUsable(record))) return false;
    return (await Promise.all(record.processes.map(isAlive))).every(Boolean);
  }

  private async userFor(known: SandboxRecord | undefined, { owner }: Workspace): Promise<User> {
    if (!this.parts.isRoot) return { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 };
    if (owner) return owner;
    if (known && isOwnUid(known.uid)) return { uid: known.uid, gid: known.gid };
    const { uid, takenFrom } = chooseUid(this.parts.records.all(), await activeUids(), this.options.home);
    // Its files stay with the number; the next claim of that session gives them to its new one.
    if (takenFrom) await this.parts.records.save({ ...takenFrom, uid: 0, gid: 0 });
    return { uid, gid: uid };
  }

  private folderOf(sandboxId: string): SandboxFolder {
    return new SandboxFolder(path.join(this.options.home, 'sandboxes'), sandboxId);
  }
}

function repositoryOf({ repository, identities }: Workspace): Pick<SandboxRecord, 'repository'> {
  return repository === undefined ? {} : { repository: { folder: repository, id: identities?.repository ?? '' } };
}

/** A worktree is reached through its project's folder, which agents cannot put another one in the place of. */
function basisOf({ folder, repository }: SandboxRecord): string {
  return repository ? path.dirname(repository.folder) : folder;
}

/** Also of a worktree of it. */
function projectOf(workspace: ClaimRequest['workspace']): { projectId?: string } {
  const base = workspace.kind === 'worktree' ? workspace.of : workspace;
  return base.kind === 'project' ? { projectId: base.projectId } : {};
}
