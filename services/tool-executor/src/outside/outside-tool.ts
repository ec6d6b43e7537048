import type { ToolDescriptor } from '@margay/contracts';

/** One attempt at an effect outside a sandbox. */
export interface Attempt {
  /** The key under which a keyed effect may be repeated. */
  callId: string;
  /** For whom it is made. */
  tenantId: string;
  argsJson: string;
  /** Its abort ends the attempt at once. */
  signal: AbortSignal;
}

export type AttemptEnd =
  /** `isPassing`: another try may fare better; `isInDoubt`: whether there was an effect is not known for all that. */
  | { kind: 'answered'; status: 'ok' | 'error'; result: unknown; isPassing?: boolean; isInDoubt?: boolean }
  /** Certainly nothing has left this process. */
  | { kind: 'not_sent'; error: string }
  /** Sent, or partly sent, and no answer came: nobody knows. */
  | { kind: 'lost'; error: string };

/** A tool whose effect lies outside any sandbox. */
export interface OutsideTool {
  descriptor: ToolDescriptor;
  /** All attempts at one call together take no longer. */
  timeoutMs: number;
  /** Never rejects. Texts it returns are free of secrets. */
  attempt(attempt: Attempt): Promise<AttemptEnd>;
}
