import { hashAfter, type StoredCommit } from './stored';
import { violation, type Violation } from './violation';

/** Numbers, times, hashes and epochs of one session's log. */
export function checkCommits(commits: readonly StoredCommit[]): Violation[] {
  return commits.flatMap((commit, index) => {
    const before = commits[index - 1];
    return [...checkNumbers(commit, before, index), ...checkHash(commit, before), ...checkEpochs(commit, before)];
  });
}

function checkNumbers(commit: StoredCommit, before: StoredCommit | undefined, index: number): Violation[] {
  const { c, head, frames, ts0 } = commit;
  const found: Violation[] = [];
  if (c !== index + 1 || head.c !== c) found.push(violation('numbers', `commit ${index + 1} has number ${c}`));
  if (head.seq !== (before?.head.seq ?? 0) + frames.length)
    found.push(violation('numbers', `commit ${c} ends at seq ${head.seq} after ${frames.length} events`));
  if (ts0 <= (before?.head.ts ?? 0)) found.push(violation('numbers', `ts of commit ${c} does not rise`));
  if (head.epoch < (before?.head.epoch ?? 0)) found.push(violation('fenced', `commit ${c} lowers the epoch`));
  return found;
}

function checkHash(commit: StoredCommit, before: StoredCommit | undefined): Violation[] {
  const isRight = hashAfter(before?.hash ?? '', commit) === commit.hash;
  return isRight ? [] : [violation('chain', `the hash of commit ${commit.c} does not follow from the one before`)];
}

/**
 * Runners name their commits `<run>.<epoch>.<n>`; claims and takeovers name the epoch that they end. Each runner's write
 * must fall into the epoch of the head before it, as its run's owner.
 */
function checkEpochs({ c, commitIds, head }: StoredCommit, before: StoredCommit | undefined): Violation[] {
  let epoch = before?.head.epoch ?? 0;
  let owned = before?.head.run?.state === 'running' ? before.head.run.id : undefined;
  const found: Violation[] = [];
  for (const id of commitIds) {
    const claim = /^claim\.(.+)\.(\d+)\.\w+$/.exec(id);
    const takeover = /^takeover\.(.+)\.(\d+)$/.exec(id);
    if (claim ?? takeover) {
      epoch = Number((claim ?? takeover)?.[2]) + 1;
      owned = claim?.[1];
      continue;
    }
    const write = /^(.+:r\d+)\.(\d+)\.\d+$/.exec(id);
    if (!write) continue;
    if (Number(write[2]) !== epoch || write[1] !== owned)
      found.push(violation('fenced', `commit ${c} holds ${id}, but ${owned ?? 'no run'} was owned at epoch ${epoch}`));
  }
  if (head.epoch < epoch)
    found.push(violation('fenced', `commit ${c} says epoch ${head.epoch}, but has seen ${epoch}`));
  return found;
}
