import { z } from 'zod';
import type { Wanted } from './lane-source';

const SESSIONS_MAX = 100;
const SESSION = /^([0-9a-f]{32})(?::(\d{1,15}))?$/;

/** `<id>[:<seq>],…`: each session once, an empty text for none. */
export const Sessions = z.string().transform((text, context): Wanted[] => {
  const parts = text.split(',').filter((part) => part !== '');
  const wanted = parts.flatMap((part) => {
    const [, sessionId, seq] = SESSION.exec(part) ?? [];
    return sessionId === undefined ? [] : [{ sessionId, seq: seq === undefined ? undefined : Number(seq) }];
  });
  const isEachOnce = new Set(wanted.map(({ sessionId }) => sessionId)).size === wanted.length;
  if (wanted.length === parts.length && isEachOnce && parts.length <= SESSIONS_MAX) return wanted;
  context.addIssue({
    code: 'custom',
    message: `Invalid input: 'sessions' must be at most ${SESSIONS_MAX} different ids, each alone or as <id>:<seq>`,
  });
  return z.NEVER;
});
