// Requests beside the agent's own loop, which come without tools: titles and summaries.
import { textOf } from './conversation.mjs';
import { oneLine } from './text.mjs';

const TITLE = /\btitle\b/i;
const MAX_TITLE_WORDS = 7;

/** The answer to a title or summary request, or undefined if it is neither. */
export function answerAside(messages, toolNames) {
  if (toolNames.length > 0 || messages.some((message) => message.role === 'tool' || message.tool_calls))
    return undefined;
  const instructions = messages.filter((message) => message.role !== 'assistant').map(textOf);
  if (instructions.some((text) => text.includes('<summary>'))) return summary(lastUserText(messages));
  const asksForTitle = instructions.some(
    (text) =>
      TITLE.test(text.slice(0, 600)) &&
      /\b(?:words?|generate|write|give|suggest|concise|short|reply|respond)\b/i.test(text),
  );
  return asksForTitle ? title(messages) : undefined;
}

const lastUserText = (messages) => textOf(messages.findLast((message) => message.role === 'user') ?? {});

function title(messages) {
  const text = lastUserText(messages);
  const labelled = /^\s*(?:first )?user(?: message)?:[ \t]*(.+(?:\n(?!\s*(?:first )?assistant)[^\n]+)*)/im.exec(
    text,
  )?.[1];
  const paragraphs = text.split(/\n\s*\n/).filter((paragraph) => paragraph.trim() !== '');
  const subject = labelled ?? paragraphs.findLast((paragraph) => !TITLE.test(paragraph)) ?? text;
  const words = oneLine(
    subject.replace(/[`*_"“”#]/g, (mark) => (mark === '_' ? mark : '')),
    400,
  )
    .split(' ')
    .slice(0, MAX_TITLE_WORDS);
  const phrase = words.join(' ').replace(/[.!?,;:]+$/, '');
  return phrase === '' ? 'A talk without words' : phrase[0].toUpperCase() + phrase.slice(1);
}

/** The headings the platform asks for, filled with lines of the transcript and nothing else. */
function summary(transcript) {
  const lines = transcript.split('\n').map((line) => line.replace(/^\[[^\]]*\]\s*/, ''));
  const pick = (pattern) => lines.filter((line) => pattern.test(line)).map((line) => `- ${oneLine(line, 200)}`);
  const orNone = (picked) => (picked.length > 0 ? picked.join('\n') : '- None in the transcript.');
  const results = pick(/^Tool\(/);
  return [
    '<analysis>Lines of the transcript, sorted by kind.</analysis>',
    '<summary>',
    `**Primary Request**\n${orNone(pick(/^User:/).slice(-5))}`,
    '**Key Technical Concepts**\n- Not judged by the demonstration model.',
    `**Files and Code**\n${orNone(results.filter((line) => line.includes('[OK]')).slice(-8))}`,
    `**Errors and Fixes**\n${orNone(results.filter((line) => line.includes('[FAILED]')).slice(-5))}`,
    `**Current State**\n${orNone(pick(/^Assistant:/).slice(-1))}`,
    '**Pending Tasks**\n- Not judged by the demonstration model.',
    '</summary>',
  ].join('\n');
}
