import { z } from 'zod';

/** On whose behalf somebody reaches the outside through the egress proxy. */
export const EgressCaller = z.strictObject({
  tenantId: z.string().min(1).max(128),
  sandboxId: z.string().min(1).max(128),
  sessionId: z.string().max(128).optional(),
  projectId: z.string().max(128).optional(),
  sandboxClass: z.string().max(64).optional(),
});
export type EgressCaller = Readonly<z.infer<typeof EgressCaller>>;

/** Of the line, with its end. */
export const EGRESS_CALLER_LINE_BYTES = 2_048;

/** The line that whoever relays for a sandbox sends to the proxy's private socket before anything else. */
export function egressCallerLine(caller: EgressCaller): Buffer {
  return Buffer.from(`${JSON.stringify(EgressCaller.parse(caller))}\n`);
}
