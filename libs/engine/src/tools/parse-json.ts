import { isNestedDeeper, JSON_DEPTH_MAX } from '@margay/contracts';

/**
 * JSON that a model wrote. @throws SyntaxError also for nesting that nothing of ours asks for: whatever stores, compares
 * or sends it on would run out of stack
 */
export function parseModelJson(text: string): unknown {
  if (isNestedDeeper(text)) throw new SyntaxError(`nested more than ${JSON_DEPTH_MAX} levels deep`);
  return JSON.parse(text) as unknown;
}
