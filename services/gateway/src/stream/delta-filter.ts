import type { LiveDelta } from '@margay/contracts';
import { typeOf, type Frame } from './feed-commit';

interface AgentStep {
  runNo: number;
  /** Step whose text is still growing. */
  open: number;
  /** Steps up to this one have their message. */
  closed: number;
}

/** Types that say something about which step may still grow. */
const WATCHED = new Set(['llm_call_start', 'llm_call_end', 'agent_message', 'completion']);
const AGENTS_MAX = 1_000;

/**
 * Knows which fragments come too late: those of a step that has its message. It is sure only about commits it has seen,
 * so fragments that follow an earlier commit are refused as well.
 */
export class DeltaFilter {
  private readonly agents = new Map<string, AgentStep>();
  private endedRunNo = 0;
  private knownFrom = Infinity;

  /** Commits behind this number will be observed; what was known of others is void. */
  restart(c: number): void {
    this.knownFrom = c;
    this.agents.clear();
  }

  observe(frames: readonly Frame[]): void {
    for (const frame of frames) if (WATCHED.has(typeOf(frame.json))) this.learn(JSON.parse(frame.json) as Watched);
  }

  admits({ c, runId, payload }: LiveDelta): boolean {
    const runNo = runNoOf(runId);
    if (c < this.knownFrom || runNo <= this.endedRunNo) return false;
    const agent = this.agents.get(payload.agent_id);
    if (!agent || agent.runNo < runNo) return true;
    return agent.runNo === runNo && payload.step > agent.closed;
  }

  private learn({ type, payload, run_id: runId = '' }: Watched): void {
    const runNo = runNoOf(runId);
    if (type === 'completion') {
      this.endedRunNo = Math.max(this.endedRunNo, runNo);
      this.agents.clear();
      return;
    }
    const { agent_id: agentId = '', step } = payload;
    const agent = this.agentOf(agentId, runNo);
    // A call that starts again, e.g. after a takeover, writes its text anew.
    if (type === 'llm_call_start') {
      agent.open = step ?? agent.open;
      agent.closed = Math.min(agent.closed, agent.open - 1);
    } else if (payload.success !== false) agent.closed = Math.max(agent.closed, step ?? agent.open);
  }

  private agentOf(agentId: string, runNo: number): AgentStep {
    const known = this.agents.get(agentId);
    if (known?.runNo === runNo) return known;
    if (this.agents.size >= AGENTS_MAX) this.agents.delete(this.agents.keys().next().value as string);
    const agent = { runNo, open: -1, closed: -1 };
    this.agents.set(agentId, agent);
    return agent;
  }
}

interface Watched {
  type: string;
  run_id?: string;
  payload: { agent_id?: string; step?: number; success?: boolean };
}

function runNoOf(runId: string): number {
  return Number(/:r(\d+)$/.exec(runId)?.[1] ?? 0);
}
