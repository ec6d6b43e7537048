import { readFile } from 'node:fs/promises';
import type { FaultWorld } from './fault-world';
import { SESSIONS } from './plan';

/** The present life of a runner, as its log names it. */
export async function instanceOf(world: FaultWorld, runner: string): Promise<string | undefined> {
  return (await linesOf(world, runner)).findLast(({ service }) => service === 'agent-runner')?.instance;
}

/** When session processes noticed that runners were gone, ascending for each. */
export async function noticesOf(world: FaultWorld): Promise<Map<string, number[]>> {
  const noticed = new Map<string, number[]>();
  for (const session of SESSIONS)
    for (const { msg, runner, time } of await linesOf(world, session)) {
      if (msg !== 'a runner is lost' || !runner || !time) continue;
      noticed.set(
        runner,
        [...(noticed.get(runner) ?? []), new Date(time).getTime()].toSorted((a, b) => a - b),
      );
    }
  return noticed;
}

interface LogLine {
  msg?: string;
  time?: string | number;
  service?: string;
  instance?: string;
  runner?: string;
}

async function linesOf(world: FaultWorld, name: string): Promise<LogLine[]> {
  const text = await readFile(world.logOf(name), 'utf8');
  return text.split('\n').flatMap((line) => {
    try {
      return line.startsWith('{') ? [JSON.parse(line) as LogLine] : [];
    } catch {
      return []; // cut off by a kill
    }
  });
}
