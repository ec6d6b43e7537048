import { parseModelJson } from '../tools/parse-json';
import type { Turn } from './turn';

const SAME_TURNS = 3;
const ERRORS_IN_A_ROW = 5;
const MALFORMED_IN_A_ROW = 3;

/** Calls that wait for something may repeat without being stuck. */
const POLL_TOOLS: ReadonlySet<string> = new Set(['check_agents', 'shell_session_tool']);

/** Watches for a run that goes in circles. */
export class Guards {
  private turns: Turn[] = [];
  private errorsInARow = 0;
  private malformedInARow = 0;

  onResult(isError: boolean): void {
    this.errorsInARow = isError ? this.errorsInARow + 1 : 0;
  }

  onAnsweredTurn(turn: Turn): void {
    this.turns = [...this.turns, turn].slice(-SAME_TURNS);
    this.malformedInARow = turn.calls.some(({ argumentsText }) => isMalformed(argumentsText))
      ? this.malformedInARow + 1
      : 0;
  }

  /** Something new was said: what repeated until now may make sense again. */
  reset(): void {
    this.turns = [];
    this.errorsInARow = 0;
    this.malformedInARow = 0;
  }

  /** The last three turns called the same with the same results, or the last five calls failed. */
  get isWithoutProgress(): boolean {
    return this.errorsInARow >= ERRORS_IN_A_ROW || this.isCircling;
  }

  /** The model keeps sending arguments that are no JSON. */
  get isMalformed(): boolean {
    return this.malformedInARow >= MALFORMED_IN_A_ROW;
  }

  private get isCircling(): boolean {
    const [first, ...others] = this.turns;
    if (!first || this.turns.length < SAME_TURNS) return false;
    if (first.calls.some(({ name }) => POLL_TOOLS.has(name))) return false;
    return others.every((turn) => turn.hasSameOutcome(first));
  }
}

function isMalformed(argumentsText: string): boolean {
  if (argumentsText.trim() === '') return false;
  try {
    parseModelJson(argumentsText);
    return false;
  } catch {
    return true;
  }
}
