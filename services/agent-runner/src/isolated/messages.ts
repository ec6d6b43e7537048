import { z } from 'zod';

/** Argument with which a process drives one run, told by its parent, instead of serving anything. */
export const RUN_ALONE = '--run-alone';

/** How often a child shows that its event loop turns. */
export const BEAT_MS = 2_000;

/** Exit codes of a child, beside Node's own. */
export const EXIT = {
  /** Its parent is gone. */
  orphaned: 70,
  /** It took too much memory beside its heap. */
  memory: 71,
} as const;

const Assign = z.object({
  sessionId: z.string(),
  runId: z.string(),
  epoch: z.number(),
  claimC: z.number(),
  grant: z.string(),
  traceparent: z.string(),
  isolated: z.boolean(),
});

/** From the runner to the process of a single run. */
export const ToChild = z.discriminatedUnion('kind', [
  /** The first, and once. */
  z.object({
    kind: z.literal('assign'),
    assign: Assign,
    failures: z.number(),
    /** Of the runner. */
    instance: z.string(),
  }),
  z.object({ kind: z.literal('grant'), grant: z.string() }),
  z.object({ kind: z.literal('stop'), cause: z.enum(['canceled', 'fenced', 'drained', 'waiting']) }),
]);
export type ToChild = z.infer<typeof ToChild>;

/** From the process of a single run to its runner. */
export const FromChild = z.discriminatedUnion('kind', [
  /** It has all it needs: from here on its end is the run's doing. */
  z.object({ kind: z.literal('ready') }),
  z.object({ kind: z.literal('beat') }),
  /** The last. */
  z.object({
    kind: z.literal('ended'),
    end: z.discriminatedUnion('kind', [
      z.object({ kind: z.literal('left') }),
      z.object({ kind: z.literal('returned') }),
      z.object({ kind: z.literal('lost'), detail: z.string() }),
    ]),
  }),
]);
export type FromChild = z.infer<typeof FromChild>;
