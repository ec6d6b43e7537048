import { parseMicros, type sessionsPb } from '@margay/contracts';
import { AbortedError, FailedPreconditionError, InvalidArgumentError } from '@margay/errors';
import { ForkWriter, type CommitDocument, type CommitStore, type Head } from '@margay/log';

/** Forks a session of a store in memory as the session service does. @returns the fork's last commit */
export async function fakeFork(
  store: CommitStore,
  head: Head,
  request: sessionsPb.ForkSessionRequest,
  sessionId: string,
): Promise<CommitDocument> {
  if (head.terminated) throw new FailedPreconditionError('session_terminated', 'Session is permanently terminated');
  if (head.run) throw new AbortedError('session_running', 'Cannot fork a running session.');
  const documents: CommitDocument[] = [];
  for await (const document of store.range(head.sessionId, 1)) documents.push(document);
  const point = request.fromTs === '' ? undefined : pointAt(documents, request.fromTs);
  const { tenantId, owner, title, cuts } = head;
  const source = { sessionId: head.sessionId, c: point?.c ?? head.c, ts: point?.ts ?? head.ts, cuts };
  const plan = { sessionId, tenantId, owner, tag: request.tag || null, title, model: request.model || null, source };
  const writer = new ForkWriter({ ...plan, forkedAtTs: point?.ts ?? null });
  const copied = documents.filter(({ c }) => c <= source.c).map((document) => writer.add(document));
  const last = [writer.flush(), writer.close(Date.now() * 1_000, { commitId: 'fork', bodyHash: '' })];
  const made = [...copied, ...last].filter((document) => document !== undefined);
  for (const document of made) await store.insert(document);
  return made.at(-1) as CommitDocument;
}

function pointAt(documents: CommitDocument[], fromTs: string): { c: number; ts: number } {
  const ts = parseMicros(fromTs);
  const document = documents.find(({ events }) => events.some((event) => event.ts === ts));
  if (!document || ts === undefined)
    throw new InvalidArgumentError('event_not_found', "'from_ts' matches no event of this session.");
  return { c: document.c, ts };
}
