import type { CommandContext } from '../command-context';
import { EXIT } from '../failures';
import { oneLine } from '../render/sanitize';
import { sessionIdOf } from '../session-reference';

interface Verified {
  ok: boolean;
  commits: number;
  head_hash: string;
  first_bad?: number;
  problem?: string;
}

/** Asks the server whether the stored log of a session is whole and unchanged; it fails where it is not. */
export async function verify(context: CommandContext, reference: string): Promise<number> {
  const { client, profile } = await context.connect();
  const id = await sessionIdOf(client, reference, profile.project);
  const found = await client.request<Verified>('GET', `/api/sessions/${id}/verify`);
  context.print({ json: { session_id: id, ...found }, lines: linesOf(id, found), quiet: [found.head_hash] });
  return found.ok ? EXIT.completed : EXIT.failed;
}

function linesOf(id: string, { ok, commits, head_hash: hash, first_bad: bad, problem }: Verified): string[] {
  if (ok) return [`session ${id}: ${commits} commits in order, hash ${oneLine(hash)}`];
  return [`session ${id}: commit ${bad ?? commits + 1} is bad: ${oneLine(problem ?? 'unknown')}`];
}
