import { isoMicros, SessionState, type SessionSummary, type sessionsPb } from '@margay/contracts';
import { sessionState, titleOf, type CommitDocument, type Head } from '@margay/log';
import { projectsOf, type SessionRow } from '../effects/session.repository';

/** Origin by the prefix or form of a session's tag. */
const ORIGIN_BY_PREFIX: [string, string][] = [
  ['wiki:', 'wiki'],
  ['agentic_search', 'search'],
  ['structured:', 'structured'],
  ['draft:', 'draft'],
  ['mobile:', 'mobile'],
  ['app:', 'apps'],
];

export function originOf(tag: string | null, context: Record<string, unknown>): string {
  const byPrefix = ORIGIN_BY_PREFIX.find(([prefix]) => tag?.startsWith(prefix));
  if (byPrefix) return byPrefix[1];
  const isChannel = /:(room|thread):/.test(tag ?? '') || context['source_platform'] !== undefined;
  return isChannel ? 'channel' : 'user';
}

interface SummarySource {
  sessionId: string;
  title: string;
  createdTs: number;
  updatedTs: number;
  tag: string | null;
  projects: string[];
  context: Record<string, unknown>;
  state: SessionState;
}

/** @param queuePosition while its run waits for a runner */
export function summaryOfHead(head: Head, queuePosition?: number): SessionSummary {
  return summary({
    sessionId: head.sessionId,
    title: titleOf(head),
    createdTs: head.createdTs,
    updatedTs: head.ts,
    tag: head.tag,
    projects: projectsOf(head),
    context: head.context,
    state: { ...sessionState(head), ...placed(queuePosition) },
  });
}

export function summaryOfRow(row: SessionRow, queuePosition?: number): SessionSummary {
  const state = { ...SessionState.parse(JSON.parse(row.stateJson)), ...placed(queuePosition) };
  const context = JSON.parse(row.contextJson) as Record<string, unknown>;
  return summary({ ...row, sessionId: row._id, title: state.title, context, state });
}

function summary({ state, ...source }: SummarySource): SessionSummary {
  const capabilities = source.context['client_capabilities'];
  const { title: _title, ...rest } = state;
  return {
    session_id: source.sessionId,
    title: source.title,
    created_at: isoMicros(source.createdTs),
    updated_at: isoMicros(source.updatedTs),
    context: source.context,
    origin: originOf(source.tag, source.context),
    capabilities: Array.isArray(capabilities) ? capabilities.filter((item) => typeof item === 'string') : [],
    workspace: null,
    archived: false,
    projects: source.projects,
    ...(source.tag === null ? {} : { tags: [source.tag] }),
    ...rest,
  };
}

function placed(queuePosition: number | undefined): Pick<SessionState, 'queue_position'> {
  return queuePosition === undefined ? {} : { queue_position: queuePosition };
}

/** @param queuePosition while its run waits for a runner */
export function stateMessage(head: Head, queuePosition?: number): sessionsPb.SessionState {
  const state = { ...sessionState(head), ...placed(queuePosition) };
  const { c, seq } = head;
  return { c, seq, running: state.running, terminated: state.terminated, json: JSON.stringify(state) };
}

/** A commit as readers get it: its frames outside the head's cuts. */
export function commitMessage(document: CommitDocument, cuts: Head['cuts']): sessionsPb.Commit {
  const isCut = (seq: number): boolean => cuts.some(([from, to]) => seq >= from && seq <= to);
  const frames = document.events
    .filter(({ seq }) => cuts.length === 0 || !isCut(seq))
    .map(({ seq, ts, frame }) => ({ seq, ts, json: frame }));
  return { c: document.c, frames };
}
