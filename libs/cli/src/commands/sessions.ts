import type { SessionSummary } from '@margay/client';
import type { CommandContext } from '../command-context';
import { EXIT } from '../failures';
import { oneLine } from '../render/sanitize';
import { table } from '../render/table';
import { sessionIdOf } from '../session-reference';

export interface ListOptions {
  project?: string;
  status?: string;
  archived?: boolean;
  limit?: number;
}

const statusOf = (row: SessionSummary): string => {
  if (row.waiting) return 'waiting';
  return row.running && row.queue_position !== undefined ? `queued ${row.queue_position}` : row.status;
};

export async function listSessions(context: CommandContext, options: ListOptions): Promise<number> {
  const { client, profile } = await context.connect();
  const project = options.project ?? profile.project;
  const rows: SessionSummary[] = [];
  const wanted = { ...(project ? { project } : {}), includeArchived: options.archived ?? false };
  for await (const row of client.sessions.list(wanted)) {
    if (options.status !== undefined && row.status !== options.status) continue;
    rows.push(row);
    if (rows.length >= (options.limit ?? 50)) break;
  }
  const cells = rows.map((row) => [
    row.session_id.slice(0, 12),
    statusOf(row),
    (row.updated_at ?? row.created_at).slice(0, 16).replace('T', ' '),
    oneLine(row.title),
  ]);
  context.print({
    json: { sessions: rows },
    lines: rows.length ? table(['ID', 'STATUS', 'UPDATED', 'TITLE'], cells, context.style) : ['no sessions yet'],
    quiet: rows.map((row) => row.session_id),
  });
  return EXIT.completed;
}

export async function showSession(context: CommandContext, reference: string): Promise<number> {
  const { client, profile } = await context.connect();
  const summary = await client.sessions.get(await sessionIdOf(client, reference, profile.project));
  const facts = Object.entries(summary).filter(([, value]) => value !== null && value !== '');
  const cells = facts.map(([name, value]) => [
    name,
    oneLine(typeof value === 'string' ? value : JSON.stringify(value)),
  ]);
  context.print({ json: summary, lines: table([], cells, context.style) });
  return EXIT.completed;
}
