import { setTimeout as pause } from 'node:timers/promises';
import { FailedPreconditionError } from '@margay/errors';
import type { Db } from 'mongodb';

interface Beating {
  _id: string;
  service?: string;
  beat?: number;
}

const LOOK_MS = 1_000;

/**
 * Resolves once no instance has given a sign of life for so long; at once where none is known. Beats are compared with
 * each other, never with a clock.
 * @throws FailedPreconditionError `instances_alive`
 */
export async function requireQuiet(databases: readonly Db[], quietMs: number): Promise<void> {
  const first = await beatsIn(databases);
  if (first.size === 0) return;
  const until = performance.now() + quietMs;
  while (performance.now() < until) {
    await pause(Math.min(LOOK_MS, quietMs));
    for (const [id, { beat, service }] of await beatsIn(databases))
      if (first.get(id)?.beat !== beat) throw alive(service ?? 'session', id);
  }
}

async function beatsIn(databases: readonly Db[]): Promise<Map<string, Beating>> {
  const rows = await Promise.all(databases.map((db) => db.collection<Beating>('instances').find({}).toArray()));
  return new Map(rows.flat().map((row) => [row._id, row]));
}

function alive(service: string, id: string): Error {
  const message = `Instance ${id} of ${service} is alive; stop the platform (scale every deployment to 0) and restore again.`; // prettier-ignore
  return new FailedPreconditionError('instances_alive', message);
}
