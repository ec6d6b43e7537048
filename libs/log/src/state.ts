import { isoMicros, type SessionState, type SessionStatus } from '@margay/contracts';
import type { Head, HeadQuestion, LastRun } from './head';

const STATUS_BY_REASON: Record<string, SessionStatus> = {
  completed: 'completed',
  compacted: 'completed',
  canceled: 'canceled',
  cancelled: 'canceled',
  error: 'failed',
  compact_failed: 'failed',
  awaiting_approval: 'awaiting_approval',
  budget_exhausted: 'incomplete',
  halted_agent_budget: 'incomplete',
  max_steps_reached: 'incomplete',
  max_iterations_reached: 'incomplete',
  halted_no_progress: 'unmet_goal',
  verification_failed: 'unmet_goal',
  safety_blocked: 'unmet_goal',
  unmet_goal: 'unmet_goal',
};

/** terminated > running > blocked_code > verified=false > the table of done reasons. */
export function statusOf(head: Head): SessionStatus {
  if (head.terminated) return 'terminated';
  if (head.run) return 'running';
  if (!head.lastRun) return 'idle';
  return statusOfRun(head.lastRun);
}

function statusOfRun(run: LastRun): SessionStatus {
  if (run.blockedCode) return 'blocked';
  if (run.verified === false) return 'failed';
  if (!run.done) return 'incomplete';
  if (run.doneReason.startsWith('command_failed:')) return 'failed';
  return STATUS_BY_REASON[run.doneReason] ?? 'completed';
}

/** State of the session as clients see it. */
export function sessionState(head: Head): SessionState {
  const status = statusOf(head);
  const last = head.run ? null : head.lastRun;
  return {
    running: head.run !== null,
    status,
    done_reason: head.run ? '' : (last?.doneReason ?? null),
    title: titleOf(head),
    recoverable: !head.run && !head.terminated && status !== 'completed' && head.runNo > 0,
    terminated: head.terminated !== null,
    terminated_at: head.terminated ? isoMicros(head.terminated.ts) : null,
    ...(head.questions ? { waiting: waitingFor(head.questions) } : {}),
    ...(last?.blockedCode ? { blocked_code: last.blockedCode } : {}),
    ...(last?.failureReason ? { failure_reason: last.failureReason } : {}),
    ...(last?.modelsTried ? { models_tried: last.modelsTried } : {}),
  };
}

/** What a person is asked for; of several questions the oldest. */
function waitingFor([oldest]: HeadQuestion[]): SessionState['waiting'] {
  if (!oldest) return undefined;
  const { callId, ts, expiresTs } = oldest;
  return {
    kind: 'question',
    id: callId,
    since: isoMicros(ts),
    expires_at: expiresTs === null ? null : isoMicros(expiresTs),
  };
}

export function titleOf(head: Head): string {
  return head.title ?? `Session ${head.sessionId.slice(0, 8)}`;
}
