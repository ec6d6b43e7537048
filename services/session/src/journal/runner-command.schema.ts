import { EVENT_PAYLOADS, RUNNER_EVENT_TYPES, isEventType, type EventInput } from '@margay/contracts';
import { CALL_ID_MAX_CHARS, LOG_RECORD_KINDS, OPEN_QUESTIONS_MAX } from '@margay/log';
import { z } from 'zod';

/** Of the events `recovery` the one that is a runner's: the others tell readers what to leave out. */
const GUARD_FIRED = 'halt_no_progress';

const RunnerEvent = z
  .object({ type: z.string(), payload: z.record(z.string(), z.unknown()) })
  .transform((event, context): EventInput => {
    const { type, payload } = event;
    if (!isEventType(type) || !RUNNER_EVENT_TYPES.has(type)) {
      context.addIssue({ code: 'custom', message: `a runner may not write events of type ${type}` });
      return z.NEVER;
    }
    const checked = EVENT_PAYLOADS[type].safeParse(payload);
    if (!checked.success) {
      context.addIssue({ code: 'custom', message: `${type}: ${z.prettifyError(checked.error)}` });
      return z.NEVER;
    }
    if (type === 'recovery' && payload['action'] !== GUARD_FIRED) {
      context.addIssue({ code: 'custom', message: 'a runner may not tell readers that a turn is run again' });
      return z.NEVER;
    }
    return { type, payload } as EventInput;
  });

/** Kinds that only the log itself writes: a runner can't forge what a person said or how a run ended. */
const OpenRecord = z.looseObject({
  kind: z.string().refine((kind) => !LOG_RECORD_KINDS.has(kind), 'is a kind of the log itself'),
});

const progress = {
  events: z.array(RunnerEvent).default([]),
  records: z.array(OpenRecord).default([]),
  consumedTo: z.number().int().min(0).optional(),
};

const callId = z.string().min(1).max(CALL_ID_MAX_CHARS);
const Question = z.object({ callId, timeoutSeconds: z.number().int().min(1).nullable() });
const Completion = z.looseObject({ done: z.boolean(), done_reason: z.string().min(1) });

/** What a runner sends over its Journal; run and epoch come from the stream, not from the message. */
export const RunnerMessage = z.discriminatedUnion('kind', [
  z.object({
    kind: z.literal('step'),
    ...progress,
    sandbox: z.object({ incarnation: z.string().min(1) }).optional(),
    questions: z.array(Question).max(OPEN_QUESTIONS_MAX).optional(),
  }),
  z.object({ kind: z.literal('finish'), ...progress, text: z.string(), completion: Completion }),
  z.object({
    kind: z.literal('release'),
    /** A runner can't say of itself that it is lost. */
    cause: z.enum(['drain', 'failed', 'unavailable', 'waiting']),
    waiting: z
      .object({ for: z.array(callId).min(1).max(OPEN_QUESTIONS_MAX), inboxEnd: z.number().int().min(0) })
      .optional(),
  }),
]);
export type RunnerMessage = z.infer<typeof RunnerMessage>;
