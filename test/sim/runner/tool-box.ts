import { toolDescriptor } from '@margay/testing';

const schema = { type: 'object', properties: { n: { type: 'string' } }, additionalProperties: false };
const shared = { operation: 'set', schema } as const;
const outside = { ...shared, placement: 'outside' } as const;

/** Tools of each class, side by side and alone, in the sandbox and outside of it. */
export const TOOLS = [
  toolDescriptor({ tool_id: 'look', schema }),
  toolDescriptor({ tool_id: 'write', effect: 'keyed', interrupt_behavior: 'cancel', ...shared }),
  toolDescriptor({ tool_id: 'shell', effect: 'unkeyed', concurrency_safe: false, ...shared }),
  toolDescriptor({ tool_id: 'build', effect: 'unkeyed', interrupt_behavior: 'cancel', ...shared }),
  toolDescriptor({ tool_id: 'mail', effect: 'unkeyed', ...outside }),
  toolDescriptor({ tool_id: 'post', effect: 'keyed', ...outside }),
];

export const OUTSIDE_TOOLS: ReadonlySet<string> = new Set(['mail', 'post']);
