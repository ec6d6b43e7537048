import type { CommitDocument, Effect } from '@margay/log';
import type { Collection } from 'mongodb';
import { isDuplicateKey } from '@margay/platform';

/** Where a question lies in its session's log. */
export interface QuestionRow {
  /** Id of the call that asked. */
  _id: string;
  tenantId: string;
  sessionId: string;
  /** Time of its `user_question` event, microseconds since the epoch. */
  ts: number;
}

/** The collection `questions`: finds those that the head does not name any more. Rows never change. */
export class QuestionRepository {
  constructor(private readonly rows: Collection<QuestionRow>) {}

  async add({ tenantId, sessionId }: CommitDocument, { callId, ts }: Effect & { kind: 'question' }): Promise<void> {
    try {
      await this.rows.insertOne({ _id: callId, tenantId, sessionId, ts });
    } catch (error) {
      if (!isDuplicateKey(error)) throw error;
    }
  }

  async find(sessionId: string, callId: string): Promise<QuestionRow | undefined> {
    return (await this.rows.findOne({ _id: callId, sessionId })) ?? undefined;
  }
}
