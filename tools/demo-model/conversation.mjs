// Reads a message list as the run it belongs to: what was asked, what was called, what came back.

const isToolResult = (message) => message.role === 'tool';
const isUser = (message) => message.role === 'user';

/** The text of a message, whether a string or parts. */
export function textOf(message) {
  if (typeof message.content === 'string') return message.content;
  return (message.content ?? []).map((part) => (typeof part?.text === 'string' ? part.text : '')).join('');
}

/** What a person wrote: without blocks like `<system-reminder>…</system-reminder>` and without a sender's label. */
function spokenText(message) {
  const withoutBlocks = textOf(message).replace(/<([a-z][\w-]*)[^>]*>[\s\S]*?<\/\1>/gi, '');
  return withoutBlocks.trim().replace(/^\[From [^\]]+\]\s*/, '');
}

/**
 * The newest run. It starts at the newest user message that does not stand right behind a tool result: one that does
 * came in while the run was working. `calls` are those since the start, `earlierCalls` those before it.
 */
export function readRun(messages) {
  const start = findStart(messages);
  const turn = messages.slice(start);
  const firstAnswer = turn.findIndex((message) => message.role === 'assistant');
  const asked = (part) => part.filter(isUser).map(spokenText).filter(Boolean);
  return {
    requests: asked(firstAnswer < 0 ? turn : turn.slice(0, firstAnswer)),
    steering: firstAnswer < 0 ? [] : asked(turn.slice(firstAnswer)),
    notices: turn.filter((message) => message.role === 'system' || message.role === 'developer').map(textOf),
    calls: callsIn(turn),
    earlierCalls: callsIn(messages.slice(0, start)),
  };
}

function findStart(messages) {
  let start = 0;
  let previous;
  messages.forEach((message, index) => {
    if (message.role === 'system' || message.role === 'developer') return;
    if (isUser(message) && spokenText(message) === '') return;
    if (isUser(message) && (previous === undefined || !(isToolResult(previous) || isUser(previous)))) start = index;
    previous = message;
  });
  return start;
}

function callsIn(messages) {
  const results = new Map(messages.filter(isToolResult).map((message) => [message.tool_call_id, textOf(message)]));
  return messages
    .flatMap((message) => message.tool_calls ?? [])
    .map((call) => ({
      name: call.function.name,
      arguments: parseArguments(call.function.arguments),
      result: results.get(call.id),
    }));
}

function parseArguments(text) {
  try {
    const value = JSON.parse(text || '{}');
    return typeof value === 'object' && value !== null ? value : { malformed: text };
  } catch (error) {
    if (error instanceof SyntaxError) return { malformed: text };
    throw error;
  }
}

const NOW =
  /\banswer (?:[\w ]+ )?now\b|\bwrap (?:it )?up now\b|\breturn now\b|\bwithout (?:calling )?(?:any )?(?:more )?tools?\b|\bno (?:more|further) tool calls?\b/i;
const PERSON_NOW = /\bwrap (?:it )?up\b|\bstop (?:now|here|working)\b|\bjust answer\b/i;

/** Whether the platform or a person asked the run to end with what it has. */
export const mustAnswerNow = (run) =>
  [...run.notices, ...run.steering].some((text) => NOW.test(text)) ||
  run.steering.some((text) => PERSON_NOW.test(text));
