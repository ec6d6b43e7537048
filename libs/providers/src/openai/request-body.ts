import type { ModelRequest, ModelTool } from '@margay/engine';
import { wireMessages, type SystemMessages } from './wire-messages';

/** JSON texts of tool lists by their first tool: lists are the same objects from step to step. */
const serialisedTools = new WeakMap<ModelTool, { count: number; text: string }>();

/** The request's JSON text. What was sent before is not serialised again, so a step costs what it adds. */
export function requestBody(request: ModelRequest, systemMessages: SystemMessages): string {
  const tools = toolsText(request.tools);
  return (
    `{"model":${JSON.stringify(request.model)},"stream":true,"stream_options":{"include_usage":true}` +
    (tools === '' ? '' : `,"tools":${tools}`) +
    `,"messages":${wireMessages(request.messages, systemMessages)}}`
  );
}

function toolsText(tools: readonly ModelTool[]): string {
  const [first] = tools;
  if (!first) return '';
  const known = serialisedTools.get(first);
  if (known?.count === tools.length) return known.text;
  const text = JSON.stringify(
    tools.map(({ name, description, parameters }) => ({
      type: 'function',
      function: { name, description, parameters },
    })),
  );
  serialisedTools.set(first, { count: tools.length, text });
  return text;
}
