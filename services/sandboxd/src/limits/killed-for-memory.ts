import { readFile } from 'node:fs/promises';

/** Of the container, by version of control groups. */
const COUNTERS = ['/sys/fs/cgroup/memory.events', '/sys/fs/cgroup/memory/memory.oom_control'];

/** How many processes of the container the kernel has killed for want of memory; 0 where it does not say. */
export async function killedForMemory(files: readonly string[] = COUNTERS): Promise<number> {
  const texts = await Promise.all(files.map((file) => readFile(file, 'latin1').catch(() => '')));
  return Number(/^oom_kill (\d+)$/m.exec(texts.join('\n'))?.[1] ?? 0);
}
