// How the figures of `steps` are laid out, with the aims of the design.
import { percentiles } from '../shared/report.mjs';

const titleOf = ({ rounds, parallel }) => `${rounds} steps × ${parallel} call${parallel === 1 ? '' : 's'}`;

export function reportFloorAndEngine(report, { shape, floor, alone, together, sessions }) {
  report.section(`engine in process, streaming, ${titleOf(shape)}`);
  const baseline = { name: 'raw client', value: floor.cpuMsPerStep };
  report.figure('raw client, CPU per step', floor.cpuMsPerStep, { unit: 'ms' });
  report.figure('CPU per step', alone.cpuMsPerStep, { unit: 'ms', baseline, aim: { atMost: 0.8 } });
  report.figure(`CPU per step, ${sessions} sessions`, together.cpuMsPerStep, { unit: 'ms', baseline });
  report.figure(`steps per second, ${sessions} sessions`, together.stepsPerSecond, { aim: { atLeast: 1000 } });
  report.milliseconds('gap', alone.gapsMs);
  report.note('gap: from one answer of the model to the next request, as the model sees it');
}

export function reportStore(report, { documents, alone, together, writers, store }) {
  report.section(`the store alone: ${store.engine}${store.version ? ` ${store.version}` : ''}, w: majority, j: true`);
  report.milliseconds('one commit', alone.insertsMs);
  report.figure('commits per second', alone.perSecond);
  report.milliseconds(`one commit, ${writers} sessions`, together.insertsMs, { baseline: { name: 'alone', ...percentiles(alone.insertsMs) } }); // prettier-ignore
  report.figure(`commits per second, ${writers} sessions`, together.perSecond);
  report.note(`${documents.length} commits of a run, one after the other through MongoCommitStore`);
}

export function reportPlatform(report, { shape, measured, commit, floor }) {
  const { steps, cpu, ours, gapsMs, stored, wallMs, operations } = measured;
  report.section(`whole platform, control + one runner, ${titleOf(shape)}`);
  report.milliseconds('gap', gapsMs, {
    baseline: { name: 'store commit', ...commit },
    aims: {
      p50: { atMost: 1.5 + commit.p50, because: '1.5 + a commit' },
      p95: { atMost: 5 + commit.p50, because: '5 + a commit' },
    },
  });
  report.figure('wall time per step', wallMs / steps, { unit: 'ms' });
  const baseline = { name: 'raw client', value: floor.cpuMsPerStep };
  report.figure('CPU per step, ours', ours / steps, { unit: 'ms', baseline, aim: { atMost: 4 } });
  for (const [name, ms] of Object.entries(cpu)) report.figure(`  ${name}`, ms / steps, { unit: 'ms' });
  // The run's acceptance, claim and end are commits too.
  report.figure('commits per step', stored.commits / steps, {
    aim: { atMost: 2 + 4 / steps, because: '2, and the run’s own' },
  });
  for (const [name, count] of Object.entries(operations)) report.figure(`store: ${name} per step`, count / steps);
  reportStored(report, steps, stored);
  reportPhases(report, measured);
}

function reportStored(report, steps, { bytes, contentBytes, growth, parts }) {
  const unit = 'B';
  report.figure('content per step', contentBytes / steps, { unit });
  report.figure('stored beyond the content per step', (bytes - contentBytes) / steps, { unit, aim: { atMost: 2560 } });
  const biggest = Object.entries(parts)
    .sort(([, a], [, b]) => b - a)
    .slice(0, 5);
  for (const [name, size] of biggest) report.figure(`  ${name}`, size / steps, { unit });
  report.figure('growth: second half by first half', growth, { aim: { atMost: 1.05, because: 'linear' } });
}

function reportPhases(report, { phases, insertMs }) {
  const ms = (value) => `${value.toFixed(2)} ms`;
  report.note(
    `gap p50 = answer → commit A built ${ms(phases.answerToA)} (waits for the B before it) + A → next request ${ms(phases.aToNext)} (tools)`,
  );
  report.note(
    `A built → B built ${ms(phases.aToB)}; an insert as session sees it ${ms(insertMs)}; the model itself ${ms(phases.nextToAnswer)}`,
  );
}

export function reportPlatformLoad(report, { shape, load, sessions }) {
  report.section(`whole platform, ${sessions} sessions at once, ${titleOf(shape)}`);
  report.figure('steps per second', load.stepsPerSecond);
  report.figure('CPU per step, ours', load.ours / load.steps, { unit: 'ms', aim: { atMost: 4 } });
  for (const [name, ms] of Object.entries(load.cpu)) report.figure(`  ${name}`, ms / load.steps, { unit: 'ms' });
}
