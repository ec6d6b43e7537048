import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { FaultWorld } from './fault-world';
import type { Fault } from './plan';

const LOST_ACKNOWLEDGEMENT = 7;
const CLOCK = join(__dirname, '../../test/faults/skew-clock.cjs');

/** Strikes, waits, and makes it good again: all processes are up when it resolves. */
export async function strike(world: FaultWorld, fault: Fault): Promise<void> {
  const { platform } = world.margay;
  switch (fault.kind) {
    case 'kill':
      await platform.get(fault.target).kill('SIGKILL');
      await delay(fault.durationMs);
      return platform.restart(fault.target);
    case 'stop':
      return stop(world, fault.target, fault.durationMs);
    case 'terminate':
      return platform.restart(fault.target);
    case 'broker-wipe':
      return world.servers.wipeBroker(fault.durationMs);
    case 'store-kill':
      return world.servers.killStore(fault.durationMs);
    case 'store-freeze':
      return world.servers.freezeStore(fault.durationMs);
    case 'drop-acks':
      return dropAcknowledgements(world, fault.target, fault.durationMs);
    case 'partition':
      return partition(world, fault);
    case 'skew':
      return skew(world, fault);
    case 'sandbox-kill':
      return killSandbox(world.margay.home);
  }
}

async function stop({ margay }: FaultWorld, target: string, durationMs: number): Promise<void> {
  const process = margay.platform.get(target);
  await process.kill('SIGSTOP');
  try {
    await delay(durationMs);
  } finally {
    await process.kill('SIGCONT');
  }
}

async function dropAcknowledgements(world: FaultWorld, target: string, durationMs: number): Promise<void> {
  const way = world.storeWay(target);
  way.dropAcknowledgements(LOST_ACKNOWLEDGEMENT);
  await delay(durationMs);
  way.dropAcknowledgements(0);
}

async function partition(world: FaultWorld, fault: Fault & { kind: 'partition' }): Promise<void> {
  const ways = world.peerWay(fault.target, fault.peer);
  for (const way of ways)
    if (fault.silent) way.silence();
    else way.cut();
  await delay(fault.durationMs);
  for (const way of ways) way.open();
}

/** A life in which the wall clock of a process is off; it is not ready, and is reached all the same. */
async function skew({ margay }: FaultWorld, { target, skewMs, durationMs }: Fault & { kind: 'skew' }): Promise<void> {
  const env = { NODE_OPTIONS: `--require ${CLOCK}`, MARGAY_FAULT_CLOCK_SKEW_MS: String(skewMs) };
  await margay.platform.restart(target, { env, until: 'started' });
  await delay(durationMs);
  await margay.platform.restart(target);
}

/** The first process inside takes all others with it. */
async function killSandbox(home: string): Promise<void> {
  const folder = join(home, 'sandboxes');
  for (const name of await readdir(folder)) {
    const text = await readFile(join(folder, name, 'record.json'), 'utf8').catch(() => '{}');
    const { processes = [] } = JSON.parse(text) as { processes?: { pid: number; startedAt: string }[] };
    const inner = processes.at(-1);
    if (inner && (await startOf(inner.pid)) === inner.startedAt) return void process.kill(inner.pid, 'SIGKILL');
  }
}

/** Tells a process from a later one with its number. */
async function startOf(pid: number): Promise<string | undefined> {
  const text = await readFile(`/proc/${pid}/stat`, 'latin1').catch(() => '');
  return text.slice(text.lastIndexOf(')') + 2).split(' ')[19];
}
