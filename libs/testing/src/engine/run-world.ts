import type { StoredEvent } from '@margay/contracts';
import {
  createEngine,
  memoryPorts,
  type DefinedTool,
  type Engine,
  type EngineEvent,
  type EngineOptions,
  type EngineSession,
  type MemoryPorts,
  type ModelRequest,
  type Tools,
} from '@margay/engine';
import { scriptedModel, type ScriptedModel } from './scripted-model';
import { VirtualClock } from './virtual-clock';

/** Real servers take real time, on a busy machine more than one would think. */
const PATIENCE_MS = 30_000;

/** An engine with everything around it in memory, and one session. */
export interface RunWorld extends Omit<MemoryPorts, 'clock'> {
  clock: VirtualClock;
  model: ScriptedModel;
  engine: Engine;
  session: EngineSession;
  /** Everything emitted, deltas included. */
  emitted: EngineEvent[];
  /** Payloads of the stored events of a type. */
  payloads: (type: StoredEvent['type']) => Promise<Record<string, unknown>[]>;
  types: () => Promise<string[]>;
  request: (n: number) => ModelRequest;
  /** Number of commits of the session. */
  commits: () => Promise<number>;
}

export async function runWorld(
  script: Parameters<typeof scriptedModel>[0],
  tools: readonly (DefinedTool | Tools)[] = [],
  options: Partial<EngineOptions> = {},
): Promise<RunWorld> {
  const clock = new VirtualClock();
  const ports = { ...memoryPorts(), clock };
  const model = scriptedModel(script);
  const emitted: EngineEvent[] = [];
  const engine = createEngine({ ...ports, model, tools, onEvent: (event) => emitted.push(event), ...options });
  const session = await engine.createSession();
  const stored = async (): Promise<StoredEvent[]> => {
    const events: StoredEvent[] = [];
    for await (const event of session.events()) events.push(event);
    return events;
  };
  return {
    ...ports,
    model,
    engine,
    session,
    emitted,
    payloads: async (type) => (await stored()).filter((event) => event.type === type).map(({ payload }) => payload),
    types: async () => (await stored()).map(({ type }) => type),
    request: (n) => JSON.parse(model.requests[n - 1] ?? 'null') as ModelRequest,
    commits: async () => (await session.head()).c,
  };
}

/** Waits until something holds; in a world without real time nothing but what is ready runs meanwhile. */
export async function until(holds: () => boolean | Promise<boolean>): Promise<void> {
  const patientUntilMs = performance.now() + PATIENCE_MS;
  for (let turn = 0; turn < 10_000 || performance.now() < patientUntilMs; turn += 1) {
    if (await holds()) return;
    await new Promise((resolve) => setImmediate(resolve));
  }
  throw new Error('it never came to hold');
}
