import type { FeedCommit } from './feed-commit';

const FRAMES_MAX = 1_000;
const CHARS_MAX = 1_000_000;

/** Live commits that arrive while a stream still replays; too many are forgotten, since the store has them. */
export class HeldCommits {
  private commits: FeedCommit[] = [];
  private frames = 0;
  private chars = 0;
  private overflowed = false;

  /** Something was forgotten since the last `clear`. */
  get isIncomplete(): boolean {
    return this.overflowed;
  }

  clear(): void {
    this.commits = [];
    this.frames = 0;
    this.chars = 0;
    this.overflowed = false;
  }

  push(commit: FeedCommit): void {
    if (this.overflowed) return;
    this.frames += commit.frames.length;
    this.chars += commit.chars;
    if (this.frames > FRAMES_MAX || this.chars > CHARS_MAX) {
      this.clear();
      this.overflowed = true;
    } else this.commits.push(commit);
  }

  shift(): FeedCommit | undefined {
    return this.commits.shift();
  }
}
