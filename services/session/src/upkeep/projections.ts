import type { Logger } from '@margay/platform';
import type { Db } from 'mongodb';
import type { MongoCommitStore } from '../commits/mongo-commit-store';
import { endedRowOf, runRowOf, type RunRow } from '../dispatch/run.repository';
import { sessionRowOf, type SessionRow } from '../effects/session.repository';
import { QuestionRepository } from '../questions/question.repository';
import { sessionRows, type OnAhead, type SessionRows } from './derived-rows';

/** Once the row is put right nothing tells of it any more. */
export function tellLost(logger: Logger): OnAhead {
  return (ahead) => logger.error(ahead, 'a row shows a commit that the log does not have: commits were lost');
}

/** The collections that follow from the heads of sessions. */
export function projectionsIn(db: Db, onAhead: OnAhead): SessionRows[] {
  return [sessionProjection(db, onAhead), runProjection(db, onAhead)];
}

/** All that can be restored from logs, also what only a look through the whole log of a session finds. */
export function rebuiltIn(db: Db, store: MongoCommitStore, onAhead: OnAhead): SessionRows[] {
  return [...projectionsIn(db, onAhead), questionNotes(db, store)];
}

function sessionProjection(db: Db, onAhead: OnAhead): SessionRows {
  return sessionRows<SessionRow>({
    collection: db.collection('sessions'),
    of: (sessionId) => ({ _id: sessionId }),
    expected: (head) => [sessionRowOf(head)],
    volatile: ['updatedTs'],
    onAhead,
    // Also where somebody who came late has finished its log: it was told to be given up, and its tag may be another's.
    isFinal: ({ isDead }) => isDead === true,
  });
}

/** The queue. Rows of runs that are over say nothing; only one that seems to go on is put right. */
function runProjection(db: Db, onAhead: OnAhead): SessionRows {
  return sessionRows<RunRow>({
    collection: db.collection('runs'),
    of: (sessionId) => ({ sessionId }),
    expected: (head) => [runRowOf(head) ?? []].flat(),
    surplus: (row, head) => (head.c === 0 ? undefined : endedRowOf(head, row._id, Math.max(row.epoch, head.epoch))),
    volatile: ['changedAtMs'],
    onAhead,
    isKept: ({ state }) => state === 'done',
  });
}

/** Where questions lie; these notes never change. */
function questionNotes(db: Db, store: MongoCommitStore): SessionRows {
  const questions = new QuestionRepository(db.collection('questions'));
  return {
    async restore(sessionId) {
      let missing = 0;
      for await (const document of store.withEffect(sessionId, 'question'))
        for (const effect of document.effects) {
          if (effect.kind !== 'question' || (await questions.find(sessionId, effect.callId))) continue;
          await questions.add(document, effect);
          missing += 1;
        }
      return missing;
    },
  };
}
