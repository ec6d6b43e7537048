// Where the time between two model calls goes, from the times of the model's requests and of the stored commits.
import { percentiles } from '../shared/report.mjs';
import { readCommits } from './store-commits.mjs';

/**
 * Median milliseconds of each part of a step's gap. The clocks are those of one machine, but each process has set its
 * own: single parts may be off by some tens of microseconds, their sum is not.
 */
export async function phasesOf(connection, sessionId, afterC, timesUs) {
  const answers = [];
  const results = [];
  for (const { events, ts0 } of await readCommits(connection, sessionId, afterC)) {
    const types = events.map(({ frame }) => JSON.parse(frame).type);
    if (types.includes('tool_call')) answers.push(ts0);
    // Results may come in several groups: the commit that starts the next call has the last of them.
    if (types.includes('llm_call_start') && answers.length > 0) results.push(ts0);
  }
  const parts = { answerToA: [], aToB: [], aToNext: [], nextToAnswer: [] };
  answers.forEach((aUs, step) => {
    const [, finishedUs] = timesUs[step];
    const [nextUs, nextFinishedUs] = timesUs[step + 1];
    parts.answerToA.push(aUs - finishedUs);
    parts.aToB.push(results[step] - aUs);
    parts.aToNext.push(nextUs - aUs);
    parts.nextToAnswer.push(nextFinishedUs - nextUs);
  });
  return Object.fromEntries(Object.entries(parts).map(([name, us]) => [name, percentiles(us).p50 / 1000]));
}
