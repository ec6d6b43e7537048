import type { Refusal } from '../driver/sandbox-driver';
import type { LiveSandbox } from './sandbox-claims';
import type { SandboxWish } from './sandbox-registry';

export interface PrepareContext {
  /** For one request to the sandbox. */
  token: () => Promise<string>;
  /** Says what it waits for. */
  report: (refusal: Refusal) => void;
  /** Nobody wants the sandbox any more. */
  signal: AbortSignal;
}

/** What is to be done around a claim, before the first call of a session goes to its sandbox. */
export interface SandboxPreparation {
  /** Before there is a sandbox. Throws where there may be none. */
  admit(wish: SandboxWish): Promise<void>;
  /** Once it answers. Throws where it is of no use. */
  prepare(wish: SandboxWish, sandbox: LiveSandbox, context: PrepareContext): Promise<void>;
}
