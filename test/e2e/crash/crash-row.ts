import {
  answer,
  byConversation,
  callTools,
  type Answer,
  type ScriptedToolCall,
  type ScriptFunction,
} from '@margay/testing';
import { count, edit } from '../../faults/script';
import type { Stage } from './stage';

/** A row of the table of crash points in protocol §5. */
export interface CrashRow {
  name: string;
  /** Faults that strike the run of this name: it is in the query, in all arguments and in the answer. */
  faults?: (run: string) => string[];
  /** What the model calls, step by step; default: one step with an unkeyed and a keyed effect. */
  steps?: (run: string) => ScriptedToolCall[][];
  /** How its last answer comes. */
  answers?: (stage: Stage, run: string) => Partial<Answer>;
  /** Default: one run from its query to its end. */
  play?: (stage: Stage) => Promise<void>;
  /** Takeovers that it leads to. */
  takeovers: number;
  /** Calls whose outcome has to be reported as unknown; default none. */
  unknown?: number;
  /** What the checker finds and has to find. */
  isMeant?: RegExp;
}

const DEFAULT_STEPS = (run: string): ScriptedToolCall[][] => [[count(run, 0, 0.3), edit(run, 1)]];
const LONG_ENOUGH = 'to be cut anywhere';

/** The model of a row. A run that was steered has no more to do. */
export function scriptOf({ steps = DEFAULT_STEPS, answers = () => ({}) }: CrashRow, stage: Stage): ScriptFunction {
  return byConversation(({ user, step }): Answer => {
    const run = /run-\d+-\d+/.exec(user)?.[0] ?? '';
    const calls = user.includes('thought') ? undefined : steps(run)[step];
    if (calls) return callTools(...calls);
    return answer(`done ${run} ${LONG_ENOUGH}`, { chunks: 3, deltaDelayMs: 10, ...answers(stage, run) });
  });
}
