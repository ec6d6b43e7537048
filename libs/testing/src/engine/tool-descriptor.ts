import { ToolDescriptor } from '@margay/contracts';

/** A complete descriptor from the fields a test is about. */
export function toolDescriptor(fields: { tool_id: string } & Partial<ToolDescriptor>): ToolDescriptor {
  return ToolDescriptor.parse({
    name: fields.tool_id,
    description: `The tool ${fields.tool_id}.`,
    schema: { type: 'object', properties: {} },
    operation: 'get',
    effect: 'pure',
    ...fields,
  });
}
