import type { ToolDescriptor } from '@margay/contracts';

const QUESTIONS_MAX = 4;
const HEADER_MAX_CHARS = 48;
const OPTIONS_MAX = 4;
const TIMEOUT_MAX_SECONDS = 86_400;
const PLACEHOLDER_MAX_CHARS = 120;

/** What a model may ask a person at once. */
export interface AskedQuestions {
  questions: {
    header: string;
    question: string;
    options?: { label: string; description?: string }[];
    multi_select?: boolean;
  }[];
  timeout_seconds?: number;
  notes_placeholder?: string;
}

const option = {
  type: 'object',
  properties: {
    label: { type: 'string', minLength: 1, description: 'What the person picks.' },
    description: { type: 'string', description: 'What picking it means.' },
  },
  required: ['label'],
  additionalProperties: false,
};

const question = {
  type: 'object',
  properties: {
    header: {
      type: 'string',
      minLength: 1,
      maxLength: HEADER_MAX_CHARS,
      description: 'A few words that name the question.',
    },
    question: { type: 'string', minLength: 1 },
    options: {
      type: 'array',
      items: option,
      minItems: 2,
      maxItems: OPTIONS_MAX,
      description: 'Answers to pick from; none: free text.',
    },
    multi_select: { type: 'boolean', default: false, description: 'Several options may be picked; needs options.' },
  },
  required: ['header', 'question'],
  additionalProperties: false,
  if: { properties: { multi_select: { const: true } }, required: ['multi_select'] },
  then: { required: ['options'] },
};

/** Asks the person who watches the run; the engine itself answers this call, with what the log says was decided. */
export const askUserQuestion: ToolDescriptor = {
  tool_id: 'ask_user_question',
  name: 'Ask the user',
  description:
    'Ask the user one to four questions and wait for the answer. Use it when a decision is theirs and a wrong guess is ' +
    'costly; otherwise choose sensibly and say what you chose.',
  enabled: true,
  disabled_reason: null,
  kind: 'local',
  server: null,
  scope: 'builtin',
  requires_capability: 'ask_user',
  schema: {
    type: 'object',
    properties: {
      questions: { type: 'array', items: question, minItems: 1, maxItems: QUESTIONS_MAX },
      timeout_seconds: {
        type: 'integer',
        minimum: 1,
        maximum: TIMEOUT_MAX_SECONDS,
        description: 'How long to wait; absent: for ever.',
      },
      notes_placeholder: {
        type: 'string',
        minLength: 1,
        maxLength: PLACEHOLDER_MAX_CHARS,
        description: 'Hint in the field for free notes.',
      },
    },
    required: ['questions'],
    additionalProperties: false,
  },
  operation: 'get',
  effect: 'pure',
  placement: 'outside',
  concurrency_safe: false,
  read_only: true,
  capability: 'read',
  interrupt_behavior: 'cancel',
  max_result_chars: 32_000,
  truncate: { head: 2 / 3, tail: 1 / 3 },
  timeout: TIMEOUT_MAX_SECONDS,
  timeout_argument: null,
  guidance: '',
};
