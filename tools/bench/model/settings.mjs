// What the bench model does by default, and what a model name overrides.

export const DEFAULTS = Object.freeze({
  /** Steps with tool calls before the final answer, and calls in each; a model name `r200p1` overrides both. */
  rounds: 200,
  parallel: 1,
  tool: 'read_file',
  /**
   * The JSON text of a call's arguments. `{i}` is the number of the call in its run from 0, `{i+N}` is N more: the
   * arguments of two steps must differ, or the engine stops the run for lack of progress.
   */
  arguments: '{"path":"README.md","limit":{i+2000}}',
  /** Words of the final answer; `n100` behind a model name overrides it. */
  tokens: 8,
  /** Pause before an answer, and between the words of the final one; then each word carries its time: `word3@<epoch ms>`. */
  latencyMs: 0,
  deltaMs: 0,
  /** `turn` counts the tool results since the run began, `all` those of the whole request. */
  scope: 'turn',
  /** Keeps the times of arrival and finish of every request. */
  trace: false,
});

/** The defaults with valid changes; throws a TypeError that names the first faulty one. */
export function applySettings(current, changes) {
  for (const [name, value] of Object.entries(changes)) {
    const isFaulty =
      !Object.hasOwn(DEFAULTS, name) ||
      typeof value !== typeof DEFAULTS[name] ||
      (typeof value === 'number' && !(Number.isInteger(value) && value >= (name === 'parallel' ? 1 : 0))) ||
      (name === 'scope' && !['turn', 'all'].includes(value));
    if (isFaulty) throw new TypeError(`no such setting or not a value for it: ${name} = ${JSON.stringify(value)}`);
  }
  return Object.freeze({ ...current, ...changes });
}

/** `{ rounds, parallel, tokens }` of a model name such as `r50p4`, `r50p4n100` or `openai/bench-r50p4`. */
export function shapeOf(model, settings) {
  const [, rounds, parallel, tokens] = /r(\d+)p([1-9]\d*)(?:n(\d+))?/.exec(model) ?? [];
  return {
    rounds: Number(rounds ?? settings.rounds),
    parallel: Number(parallel ?? settings.parallel),
    tokens: Number(tokens ?? settings.tokens),
  };
}

/** The arguments of one call. */
export const argumentsOf = (template, callNumber) =>
  template.replace(/\{i(?:\+(\d+))?\}/g, (_, offset) => String(callNumber + Number(offset ?? 0)));
