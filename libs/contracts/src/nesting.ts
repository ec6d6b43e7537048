/** Deepest nesting of JSON from outside: what reads it here recurses, and must not run out of stack. */
export const JSON_DEPTH_MAX = 100;

const QUOTE = 34;
const BACKSLASH = 92;
const OPENING = new Set([91, 123]);
const CLOSING = new Set([93, 125]);

/** Whether a JSON text is nested deeper than `max` levels; says nothing of texts that are no JSON. */
export function isNestedDeeper(json: string, max = JSON_DEPTH_MAX): boolean {
  let depth = 0;
  let isInText = false;
  for (let index = 0; index < json.length; index += 1) {
    const code = json.charCodeAt(index);
    if (code === QUOTE) isInText = !isInText;
    else if (isInText) index += code === BACKSLASH ? 1 : 0;
    else if (OPENING.has(code)) {
      depth += 1;
      if (depth > max) return true;
    } else if (CLOSING.has(code)) depth -= 1;
  }
  return false;
}
