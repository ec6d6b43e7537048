import { InvalidArgumentError, NotFoundError, type MargayClient, type SessionSummary } from '@margay/client';
import { closest } from 'fastest-levenshtein';

const FULL_ID = /^[0-9a-f]{32}$/;
const PREFIX = /^[0-9a-f]{4,31}$/;
const SHOWN_CANDIDATES = 5;

/** The session id that `ID` means: a full id, a unique prefix, a tag, or `@last`. A full id is not looked up. */
export async function sessionIdOf(client: MargayClient, reference: string, project?: string): Promise<string> {
  if (FULL_ID.test(reference)) return reference;
  if (reference === '@last') return lastOf(client, project);
  const rows: SessionSummary[] = [];
  for await (const row of client.sessions.list({ includeArchived: true, pageSize: 200 })) {
    if (row.tags?.includes(reference)) return row.session_id;
    rows.push(row);
  }
  const matching = PREFIX.test(reference) ? rows.filter((row) => row.session_id.startsWith(reference)) : [];
  if (matching.length === 1 && matching[0]) return matching[0].session_id;
  throw matching.length ? ambiguous(reference, matching) : unknown(reference, rows);
}

async function lastOf(client: MargayClient, project: string | undefined): Promise<string> {
  let last: SessionSummary | undefined;
  const at = (row: SessionSummary): string => row.updated_at ?? row.created_at;
  for await (const row of client.sessions.list({ pageSize: 200, ...(project ? { project } : {}) }))
    if (!last || at(row) > at(last)) last = row;
  if (last) return last.session_id;
  throw new NotFoundError('session_not_found', `there is no last session${project ? ` in project ${project}` : ''}`, {
    details: { hint: 'margay run TEXT starts one' },
  });
}

function ambiguous(reference: string, rows: SessionSummary[]): Error {
  const shown = rows.slice(0, SHOWN_CANDIDATES).map((row) => row.session_id);
  const more = rows.length > shown.length ? ` and ${rows.length - shown.length} more` : '';
  return new InvalidArgumentError(
    'ambiguous_session',
    `"${reference}" begins several ids: ${shown.join(', ')}${more}`,
    {
      details: { hint: 'more characters of the id' },
    },
  );
}

function unknown(reference: string, rows: SessionSummary[]): Error {
  const names = rows.flatMap((row) => [row.session_id.slice(0, Math.max(4, reference.length)), ...(row.tags ?? [])]);
  const hint = names.length ? `${closest(reference, names)}, or margay sessions` : 'margay run TEXT starts a session';
  return new NotFoundError('session_not_found', `no session has the id, prefix or tag "${reference}"`, {
    details: { hint },
  });
}
