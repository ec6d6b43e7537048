import type { ToolDescriptor } from '@margay/contracts';

const ARGUMENT_GRACE_SECONDS = 5;
/** No argument makes a call last longer. */
const ARGUMENT_MAX_SECONDS = 24 * 3600;

/** Outer time-out of a call, seconds: the descriptor's, or five more than what the arguments ask for if that is longer. */
export function timeoutSeconds(descriptor: ToolDescriptor, args: Record<string, unknown>): number {
  const asked = descriptor.timeout_argument === null ? undefined : args[descriptor.timeout_argument];
  if (typeof asked !== 'number' || !(asked > 0)) return descriptor.timeout;
  return Math.max(descriptor.timeout, Math.min(asked, ARGUMENT_MAX_SECONDS) + ARGUMENT_GRACE_SECONDS);
}
