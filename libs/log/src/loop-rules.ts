import { ALL_DECIDE_RULES, type DecideRules } from './decision';

/** Rules of the loop that a simulator may switch off to show what they prevent; all hold in service. */
export interface LoopRules extends DecideRules {
  /** Rejections are decided on a head read from the store after the command came in. */
  freshRejections: boolean;
  /** … and only once a linearizable read found nothing behind it. */
  linearizableEnd: boolean;
  /** A number that was named as taken but can't be seen is inserted again. */
  reinsertInvisible: boolean;
  /** Commands already stored are looked for before a command is decided again. */
  findStored: boolean;
  /** A second copy of a command in one batch gets the outcome of the first. */
  copiesJoin: boolean;
  /** A deadline is looked at before the first insert is sent, and never after. */
  deadlineBeforeSending: boolean;
}

export const ALL_LOOP_RULES: LoopRules = {
  ...ALL_DECIDE_RULES,
  freshRejections: true,
  linearizableEnd: true,
  reinsertInvisible: true,
  findStored: true,
  copiesJoin: true,
  deadlineBeforeSending: true,
};
