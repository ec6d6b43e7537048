// The engine in this process: the library with streaming, one in-process tool, and its durable log in memory.
import { performance } from 'node:perf_hooks';
import { createEngine } from '../../../libs/engine/dist/index.js';
import { MemoryBlobStore, MemoryCommitStore } from '../../../libs/log/dist/index.js';
import { openAiModel } from '../../../libs/providers/dist/index.js';
import { gapsOf } from '../shared/bench-model.mjs';
import { RandomIds, readFile, RealClock } from '../shared/engine-ports.mjs';
import { medianBy } from '../shared/report.mjs';

/** One run in a session of its own; answers its commits. */
async function playRun(model, shape) {
  const store = new MemoryCommitStore();
  const ports = { clock: new RealClock(), ids: new RandomIds(), store, blobs: new MemoryBlobStore() };
  const engine = createEngine({ ...ports, model, tools: [readFile] });
  try {
    const session = await engine.createSession();
    const { doneReason, error } = await session.run('go', { model: shape });
    if (doneReason !== 'completed') throw new Error(`the engine's run ended ${doneReason}: ${error ?? ''}`);
    return { store, sessionId: session.id };
  } finally {
    engine.close();
  }
}

/** The commits of one run, as the session service would store them. */
export async function commitsOfRun(model, shape) {
  const { store, sessionId } = await playRun(openAiModel({ baseUrl: model.baseUrl, apiKey: 'none' }), shape);
  const documents = [];
  for await (const document of store.range(sessionId, 1)) documents.push(document);
  return documents;
}

/**
 * `sessions` runs at once, `repeat` times after one that is not counted; the turn with the median CPU time.
 * @returns `{ steps, cpuMsPerStep, stepsPerSecond, gapsMs }`; gaps only of a single session
 */
export async function measureEngine({ model, rounds, parallel, repeat, sessions = 1 }) {
  const port = openAiModel({ baseUrl: model.baseUrl, apiKey: 'none' });
  const shape = `r${rounds}p${parallel}`;
  const steps = (rounds + 1) * sessions;
  await playRun(port, shape);
  const turns = [];
  for (let turn = 0; turn < repeat; turn += 1) {
    await model.reset();
    const cpu = process.cpuUsage();
    const startMs = performance.now();
    await Promise.all(Array.from({ length: sessions }, () => playRun(port, shape)));
    const wallMs = performance.now() - startMs;
    const { user, system } = process.cpuUsage(cpu);
    const stats = await model.stats();
    if (stats.requests !== steps) throw new Error(`the engine asked ${stats.requests} times in ${steps} steps`);
    turns.push({
      steps,
      cpuMsPerStep: (user + system) / 1000 / steps,
      stepsPerSecond: (steps / wallMs) * 1000,
      gapsMs: sessions === 1 ? gapsOf(stats) : [],
    });
  }
  return medianBy(turns, ({ cpuMsPerStep }) => cpuMsPerStep);
}
