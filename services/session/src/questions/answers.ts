import { InvalidArgumentError } from '@margay/errors';
import { z } from 'zod';

const TEXT_MAX_CHARS = 10_000;
const NOTES_MAX_CHARS = 4_000;
const LATE = 'This answers the question you asked earlier, which had no answer at the time.';

const Answers = z.array(
  z.strictObject({
    selected_indexes: z.array(z.number().int()).optional(),
    text: z.string().max(TEXT_MAX_CHARS).optional(),
  }),
);

/** One question as its event shows it. */
export interface ShownQuestion {
  header: string;
  question: string;
  options: { label: string; description?: string }[];
  multi_select: boolean;
}

export interface GivenAnswer {
  answers: z.infer<typeof Answers>;
  notes: string | null;
  /** What the model reads as the call's result. */
  text: string;
  /** What it reads where the run that asked has gone on. */
  lateText: string;
}

/**
 * Checks answers against their questions.
 * @throws InvalidArgumentError `invalid_answers` where they have another form; `validation` where they fit no question
 */
export function checkAnswers(questions: readonly ShownQuestion[], answersJson: string, notes: string): GivenAnswer {
  const answers = parse(answersJson);
  if (answers.length !== questions.length)
    throw unfit(`${questions.length} question(s) were asked, ${answers.length} answered: answer each, in order`);
  if (notes.length > NOTES_MAX_CHARS) throw unfit(`notes may have ${NOTES_MAX_CHARS} characters`);
  const lines = questions.map((question, index) => `${question.header}: ${chosen(question, answers[index] ?? {})}`);
  const text = ['The user answered:', ...lines, ...(notes === '' ? [] : [`Notes: ${notes}`])].join('\n');
  return { answers, notes: notes === '' ? null : notes, text, lateText: `${LATE}\n\n${text}` };
}

function parse(json: string): GivenAnswer['answers'] {
  let value: unknown;
  try {
    value = JSON.parse(json);
  } catch {
    value = undefined; // of no shape that anybody asks for
  }
  const parsed = Answers.safeParse(value);
  if (parsed.success) return parsed.data;
  const shape = '\'answers\' must be a list of {"selected_indexes":[…]} or {"text":"…"}';
  throw new InvalidArgumentError('invalid_answers', `${shape}: ${z.prettifyError(parsed.error)}`);
}

/** Labels or text, in words. */
function chosen(question: ShownQuestion, { selected_indexes: indexes, text }: GivenAnswer['answers'][number]): string {
  const { header, options, multi_select: isMulti } = question;
  const said = text?.trim() ?? '';
  if (indexes === undefined) {
    if (said === '') throw unfit(`'${header}' needs a selection or a text`);
    return said;
  }
  if (said !== '') throw unfit(`'${header}' takes a selection or a text, not both`);
  if (indexes.length === 0) throw unfit(`'${header}' needs a selection or a text`);
  if (new Set(indexes).size !== indexes.length) throw unfit(`'${header}' names an option twice`);
  if (indexes.length > 1 && !isMulti) throw unfit(`'${header}' takes one option`);
  const labels = indexes.map((index) => options[index]?.label);
  if (labels.includes(undefined)) throw unfit(`'${header}' has options 0 to ${options.length - 1}`);
  return labels.join(', ');
}

function unfit(message: string): Error {
  return new InvalidArgumentError('validation', message);
}
