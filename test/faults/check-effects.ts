import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { effectOf, EFFECT_FILES, type Effect } from './script';
import type { StoredEvent } from './stored-event';
import { violation, type Violation } from './violation';

export interface EffectFindings {
  violations: Violation[];
  /** Unkeyed calls of which nobody can say whether they took effect. */
  unknown: number;
  /** Effects that were counted, and found where they belong. */
  effects: number;
}

/** Compares what results say with the lines that calls left in the workspace. */
export async function checkEffects(folder: string, events: readonly StoredEvent[]): Promise<EffectFindings> {
  const lines = await readLines(folder);
  const results = events.filter(({ type }) => type === 'tool_result').flatMap(claimOf);
  const called = events.filter(({ type }) => type === 'tool_call').flatMap(claimOf);
  const violations = [
    ...results.flatMap((claim) => checkClaim(claim, timesIn(lines, claim.effect))),
    ...checkUncalled(lines, called),
    ...checkTwice(lines, called),
  ];
  return { violations, unknown: results.filter(({ isUnknown }) => isUnknown).length, effects: results.length };
}

interface Claim {
  effect: Effect;
  isUnknown: boolean;
  /** It was ended in the middle, which the result says: it has begun, and not finished. */
  isKilled: boolean;
  isSuccess: boolean;
  text: string;
}

function claimOf({ payload }: StoredEvent): Claim[] {
  const effect = effectOf(payload.tool_id ?? '', payload.tool_input);
  if (!effect) return [];
  const text = JSON.stringify(payload);
  return [
    {
      effect,
      isUnknown: /unknown/.test(text),
      isKilled: /was killed/.test(text),
      isSuccess: payload.success === true,
      text: text.slice(0, 400),
    },
  ];
}

function checkClaim({ effect, isUnknown, isKilled, isSuccess, text }: Claim, times: number): Violation[] {
  const said = `${effect.token} took effect ${times} times: ${text}`;
  if (effect.effect === 'keyed') return times === 1 && isSuccess ? [] : [violation('keyed', said)];
  const isRight = isUnknown || isKilled ? times <= 1 : times === (isSuccess ? 1 : 0);
  return isRight ? [] : [violation('unkeyed', said)];
}

/** What happened although no stored call asked for it. */
function checkUncalled(lines: Lines, called: readonly Claim[]): Violation[] {
  return EFFECT_FILES.flatMap(({ file, effect }) => {
    const tokens = new Set(called.map(({ effect: { token } }) => token));
    const strangers = lines[file].filter((line) => line.startsWith('run-') && !tokens.has(line));
    return strangers.map((line) => violation(effect, `${line} took effect, but no stored call asked for it`));
  });
}

/** What happened twice in a call that has no result (yet). */
function checkTwice(lines: Lines, called: readonly Claim[]): Violation[] {
  return called
    .filter(({ effect }) => timesIn(lines, effect) > 1)
    .map(({ effect }) => violation(effect.effect, `${effect.token} took effect ${timesIn(lines, effect)} times`));
}

type Lines = Record<Effect['file'], string[]>;

const timesIn = (lines: Lines, { file, token }: Effect): number => lines[file].filter((line) => line === token).length;

async function readLines(folder: string): Promise<Lines> {
  const read = async (file: string) => (await readFile(join(folder, file), 'utf8')).split('\n');
  return { 'count.txt': await read('count.txt'), 'edits.txt': await read('edits.txt') };
}
