// What an agent's step costs, from the bare client up to the whole platform, on a scripted model without latency.
// A step is one model call, the final one included.
import { measureFloor } from './floor.mjs';
import { startBenchModel } from './shared/bench-model.mjs';
import { benchFolder, openBenchServers } from './shared/bench-servers.mjs';
import { startBenchPlatform } from './shared/bench-platform.mjs';
import { percentiles } from './shared/report.mjs';
import { commitsOfRun, measureEngine } from './steps/engine-run.mjs';
import { prepareProfile } from './shared/profile.mjs';
import { measurePlatform, measurePlatformLoad } from './steps/platform-run.mjs';
import { reportFloorAndEngine, reportPlatform, reportPlatformLoad, reportStore } from './steps/report.mjs';
import { measureInserts } from './steps/store-commits.mjs';

const SHAPES = [
  { rounds: 200, parallel: 1 },
  { rounds: 50, parallel: 4 },
];
const QUICK_SHAPES = [
  { rounds: 40, parallel: 1 },
  { rounds: 10, parallel: 4 },
];
const SESSIONS = 20;

export async function run({ report, closing, progress, isQuick, isProfiled }) {
  const directory = await benchFolder(closing);
  const model = await startBenchModel(directory);
  closing.add(() => model.stop());
  const shapes = isQuick ? QUICK_SHAPES : SHAPES;
  const repeat = isQuick ? 1 : 3;

  for (const shape of shapes) {
    progress(`in process: ${shape.rounds} steps × ${shape.parallel}`);
    const turns = isQuick ? 1 : 7;
    const floor = await measureFloor({ baseUrl: model.baseUrl, ...shape, repeat: turns });
    const alone = await measureEngine({ model, ...shape, repeat: turns });
    const together = await measureEngine({ model, ...shape, repeat: 1, sessions: SESSIONS });
    reportFloorAndEngine(report, { shape, floor, alone, together, sessions: SESSIONS });
  }

  const servers = await openBenchServers({ directory, closing, progress });
  progress('the store alone');
  const documents = await commitsOfRun(model, 'r200p1');
  await measureInserts(servers.connection, documents.slice(0, 50), { writers: 2 });
  const alone = await measureInserts(servers.connection, documents);
  const together = await measureInserts(servers.connection, documents.slice(0, 100), { writers: SESSIONS });
  reportStore(report, { documents, alone, together, writers: SESSIONS, store: servers.store });
  const commit = percentiles(alone.insertsMs);

  progress('starting the platform');
  const profile = isProfiled ? await prepareProfile(directory) : undefined;
  const bench = await startBenchPlatform({ directory, closing, servers, model, env: profile?.env });
  profile?.mark();
  for (const shape of shapes) {
    progress(`whole platform: ${shape.rounds} steps × ${shape.parallel}`);
    // Anew: on a shared machine only what was measured in the same minute can be compared.
    const floor = await measureFloor({ baseUrl: model.baseUrl, ...shape, repeat });
    const measured = await measurePlatform({ bench, servers, model, ...shape, repeat });
    reportPlatform(report, { shape, measured, commit, floor });
  }
  progress(`whole platform: ${SESSIONS} sessions at once`);
  const shape = { rounds: isQuick ? 10 : 50, parallel: 1 };
  const load = await measurePlatformLoad({ bench, servers, model, ...shape, sessions: SESSIONS });
  reportPlatformLoad(report, { shape, load, sessions: SESSIONS });
  profile?.mark();
  if (profile) {
    await bench.stop();
    await profile.report(report, bench.pids);
  }
}
