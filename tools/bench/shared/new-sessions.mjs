import { atOnce } from './at-once.mjs';

/** Ids of sessions that exist beforehand: only what follows is measured. */
export async function newSessions(http, count) {
  const ids = [];
  await atOnce(16, count, async () => {
    const { status, text } = await http.call('POST', '/api/sessions', {});
    if (status >= 300) throw new Error(`no session: ${status} ${text}`);
    ids.push(JSON.parse(text).session_id);
  });
  return ids;
}
