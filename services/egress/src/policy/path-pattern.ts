const ANY_STEPS = '**';
/** Slashes, backslashes and ends of text that are encoded, even several times; steps that some servers take for dots. */
const AMBIGUOUS = /%(25)*(2f|5c|00)|%(25)+2e|\\|\/\/|\/(\.|%2e){1,2}(;|%3b)/i;

/** Whether servers differ in where this path leads, so that nothing that was said about paths can hold for it. */
export const isAmbiguous = (path: string): boolean => AMBIGUOUS.test(path);

/**
 * Whether a path matches a pattern: `*` and `?` stand for characters of one step, `**` as a step for any number of steps,
 * none included. Tenants write patterns and their sandboxes the paths, so it must not take long, whatever they write: a
 * star never has to give back what a later star has settled.
 */
export function matchesPathPattern(pattern: string, path: string): boolean {
  return matchesParts(pattern.split('/'), path.split('/'), {
    isMany: (step) => step === ANY_STEPS,
    isOne: (step, given) => matchesStep(step, given),
  });
}

function matchesStep(step: string, given: string): boolean {
  // A star stands for something where it is all there is.
  if (step === '*') return given !== '';
  return matchesParts([...step], [...given], {
    isMany: (letter) => letter === '*',
    isOne: (letter, other) => letter === '?' || letter === other,
  });
}

interface Matching {
  isMany(part: string): boolean;
  isOne(part: string, given: string): boolean;
}

/** Goes back to the last part that stands for many only, which is enough. */
function matchesParts(parts: readonly string[], given: readonly string[], { isMany, isOne }: Matching): boolean {
  let [at, part] = [0, 0];
  let [star, taken] = [-1, 0];
  while (at < given.length) {
    const wanted = parts[part];
    if (wanted !== undefined && isMany(wanted)) [star, taken, part] = [part, at, part + 1];
    else if (wanted !== undefined && isOne(wanted, given[at] ?? '')) [at, part] = [at + 1, part + 1];
    else if (star >= 0) [taken, at, part] = [taken + 1, taken + 1, star + 1];
    else return false;
  }
  return parts.slice(part).every(isMany);
}
