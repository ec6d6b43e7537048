import { createHash } from 'node:crypto';

/** Providers take at most 40 letters, digits, `_` and `-`. */
const ACCEPTED = /^[A-Za-z0-9_-]{1,40}$/;
const OURS = /\.(\d+)\.(\d+)\.(\d+)$/;

/** Our call id in a form that every provider takes: unique within a session, the same on every request. */
export function wireCallId(callId: string): string {
  if (ACCEPTED.test(callId)) return callId;
  const parts = OURS.exec(callId);
  if (parts) return `call_${parts[1]}_${parts[2]}_${parts[3]}`;
  return `call_${createHash('sha256').update(callId).digest('hex').slice(0, 24)}`;
}
