import { mkdir, readdir, readFile, rmdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';

export interface CgroupLimits {
  memoryBytes: number;
  processes: number;
}

const CONTROLLERS: readonly string[] = ['memory', 'pids', 'cpu'];
const MOUNT = '/sys/fs/cgroup';
const REMOVE_TRIES = 20;

/** Bounds on a whole sandbox, where the control groups of this process can be written; elsewhere nothing. */
export class Cgroups {
  constructor(private readonly parents: readonly { folder: string; controllers: readonly string[] }[] = []) {}

  /** Looks for writable version 1 hierarchies or a version 2 parent that hands controllers down. */
  static async detect(): Promise<Cgroups> {
    const lines = (await readFile('/proc/self/cgroup', 'utf8').catch(() => '')).trim().split('\n');
    const parents: { folder: string; controllers: string[] }[] = [];
    for (const line of lines) {
      const [, names = '', own = '/'] = line.split(':');
      const controllers = names.split(',').filter((name) => CONTROLLERS.includes(name));
      if (controllers.length > 0) parents.push({ folder: path.join(MOUNT, names, own), controllers });
      if (names === '')
        parents.push({ folder: path.join(MOUNT, own), controllers: await handedDown(path.join(MOUNT, own)) });
    }
    const usable: typeof parents = [];
    for (const parent of parents) {
      if (parent.controllers.length > 0 && (await canMakeGroup(parent.folder))) usable.push(parent);
    }
    return new Cgroups(usable);
  }

  get bounds(): string[] {
    return this.parents.flatMap((parent) => parent.controllers);
  }

  /** Makes a sandbox's groups; returns the files a process writes its number to in order to join. */
  async create(sandboxId: string, limits: CgroupLimits): Promise<string[]> {
    const joins: string[] = [];
    for (const { folder, controllers } of this.parents) {
      const group = path.join(folder, `margay-${sandboxId}`);
      await mkdir(group, { recursive: true });
      if (controllers.includes('pids')) await write(group, ['pids.max'], limits.processes);
      if (controllers.includes('memory'))
        await write(group, ['memory.max', 'memory.limit_in_bytes'], limits.memoryBytes);
      if (controllers.includes('cpu')) await shareProcessors(group);
      joins.push(path.join(group, 'cgroup.procs'));
    }
    return joins;
  }

  async remove(sandboxId: string): Promise<void> {
    for (const { folder } of this.parents) await removeGroup(path.join(folder, `margay-${sandboxId}`));
  }
}

async function handedDown(folder: string): Promise<string[]> {
  const text = await readFile(path.join(folder, 'cgroup.subtree_control'), 'utf8').catch(() => '');
  return text.split(/\s+/).filter((name) => CONTROLLERS.includes(name));
}

async function canMakeGroup(folder: string): Promise<boolean> {
  const probe = path.join(folder, `margay-probe-${process.pid}`);
  return mkdir(probe)
    .then(() => rmdir(probe))
    .then(
      () => true,
      () => false, // read-only or not ours: then there are no groups
    );
}

/** However many processes it starts, all of them together get half of what one process outside does when it is tight. */
async function shareProcessors(group: string): Promise<void> {
  await write(group, ['cpu.weight'], 50);
  await write(group, ['cpu.shares'], 512);
}

/** The first of the files that exists; its name depends on the version of the hierarchy. */
async function write(group: string, files: readonly string[], value: number): Promise<void> {
  const there = new Set(await readdir(group));
  const file = files.find((name) => there.has(name));
  if (file !== undefined) await writeFile(path.join(group, file), String(value));
}

/** The kernel frees a group a moment after its last process ended. */
async function removeGroup(group: string): Promise<void> {
  for (let attempt = 0; attempt < REMOVE_TRIES; attempt += 1) {
    const code = await rmdir(group).then(
      () => undefined,
      (error: NodeJS.ErrnoException) => error.code,
    );
    if (code !== 'EBUSY') return;
    await delay(10);
  }
}
