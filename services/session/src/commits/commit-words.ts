/**
 * Pieces of JSON that most commits repeat, each stored as one control character: JSON texts hold none themselves, so the
 * way back is exact. The lists are part of the stored form: they may grow at their ends, and never change otherwise.
 */
const EVENT_WORDS = [
  ',"cache_creation_input_tokens":',
  ',"cache_read_input_tokens":',
  ',"reasoning_output_tokens":',
  ',"cumulative_input_tokens":',
  ',"cumulative_output_tokens":',
  ',"input_tokens":',
  ',"output_tokens":',
  ',"success":true',
  ',"duration_ms":',
  ',"model":"',
  '{"tool_call_id":"',
  '","tool_id":"',
  '","operation":"',
  '","tool_input":',
  ',"result":"',
  '","summary":"',
  ',"agent_id":"',
  '{"agent_id":"',
  '","depth":',
  ',"step":',
  ',"bound_tools":[',
  ',"text":"',
  ',"tool_call_id":"',
];

const RECORD_WORDS = [
  '{"kind":"assistant","agentId":"',
  '{"kind":"tool","agentId":"',
  ',"toolCalls":[{"providerCallId":"',
  '{"providerCallId":"',
  '","argumentsText":"',
  ',"usage":{"inputTokens":',
  ',"outputTokens":',
  ',"cacheReadTokens":',
  ',"cacheCreationTokens":',
  ',"reasoningTokens":',
  '","callId":"',
  ',"isError":false',
  ',"model":"',
  ',"text":"',
  ',"text":{"$event":[',
  '","name":"',
  ',"step":',
];

const HEAD_WORDS = [
  '{"seq":',
  ',"createdTs":',
  ',"owner":"',
  ',"title":"',
  ',"context":{"model":"',
  ',"binding":{"project":',
  ',"epoch":',
  ',"runNo":',
  ',"run":{"id":"',
  ',"no":',
  ',"state":"running"',
  ',"pool":"default"',
  ',"acceptedTs":',
  ',"principal":"',
  ',"consumedTo":',
  ',"inboxEnd":',
  ',"sandbox":{"incarnation":"',
  ',"lastRun":{"id":"',
  ',"done":true,"doneReason":"completed"',
  ',"traceparent":"',
  ',"mode":"',
  ',"cwd":"',
  ',"client_capabilities":[',
  ',"surface":"',
];

/** Stands for the session's id. */
const ID_MARK = '\u0001';
const FIRST_WORD = 2;
/** Longer texts consist of content: looking for words there costs more than it saves. */
const WORDS_MAX_CHARS = 4_096;

/** Shortens JSON texts of one kind and restores them; other texts than JSON may not be given. */
export class Shorthand {
  private readonly search: RegExp;
  private readonly codeOf: ReadonlyMap<string, string>;

  constructor(private readonly words: readonly string[]) {
    this.codeOf = new Map(words.map((word, index) => [word, String.fromCharCode(FIRST_WORD + index)]));
    // Where two words begin alike, the longer one first.
    const longestFirst = words.toSorted((a, b) => b.length - a.length);
    this.search = new RegExp(longestFirst.map(escaped).join('|'), 'g');
  }

  shorten(text: string, sessionId: string): string {
    const marked = text.replaceAll(sessionId, ID_MARK);
    if (marked.length > WORDS_MAX_CHARS) return marked;
    return marked.replace(this.search, (word) => this.codeOf.get(word) ?? word);
  }

  expand(text: string, sessionId: string): string {
    // eslint-disable-next-line no-control-regex -- these are the characters that stand for something
    return text.replace(/[\u0001-\u001f]/g, (code) =>
      code === ID_MARK ? sessionId : (this.words[code.charCodeAt(0) - FIRST_WORD] ?? code),
    );
  }
}

function escaped(word: string): string {
  return word.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
}

export const eventText = new Shorthand(EVENT_WORDS);
export const recordText = new Shorthand(RECORD_WORDS);
export const headText = new Shorthand(HEAD_WORDS);
