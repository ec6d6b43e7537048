import type { Clock } from '@margay/client';
import type { Environment } from './config';

export interface Output {
  write(text: string): void;
  /** Whether a person watches it. */
  isTerminal: boolean;
  columns: number;
}

/** Everything outside the command line that it touches. */
export interface Terminal {
  stdout: Output;
  stderr: Output;
  environment: Environment;
  /** Folder that relative paths start from. */
  folder: string;
  clock: Clock;
  /** All of standard input. */
  readInput(): Promise<string>;
  /** Calls back on Ctrl-C instead of ending the process, until the returned function is called. */
  onInterrupt(callback: () => void): () => void;
}
