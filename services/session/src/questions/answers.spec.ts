import { checkAnswers, type ShownQuestion } from './answers';

const option = (label: string) => ({ label });
const COLOUR: ShownQuestion = {
  header: 'Colour',
  question: 'Which one?',
  options: [option('red'), option('blue'), option('green')],
  multi_select: false,
};
const SIZES: ShownQuestion = { ...COLOUR, header: 'Sizes', multi_select: true };
const WHY: ShownQuestion = { header: 'Why', question: 'Tell me', options: [], multi_select: false };

const check = (questions: ShownQuestion[], answers: unknown, notes = '') =>
  checkAnswers(questions, JSON.stringify(answers), notes);
const problem = (questions: ShownQuestion[], answers: unknown, notes = ''): { reason: string; message: string } => {
  try {
    check(questions, answers, notes);
  } catch (error) {
    return error as never;
  }
  throw new Error('it was taken');
};

it('puts selections, texts and notes into words for the model', () => {
  const answers = [{ selected_indexes: [1] }, { selected_indexes: [2, 0] }, { text: '  because  ' }];
  const checked = check([COLOUR, SIZES, WHY], answers, 'thanks');
  expect(checked.text).toBe('The user answered:\nColour: blue\nSizes: green, red\nWhy: because\nNotes: thanks');
  expect(checked).toMatchObject({ answers, notes: 'thanks' });
  expect(checked.lateText).toBe(
    `This answers the question you asked earlier, which had no answer at the time.\n\n${checked.text}`,
  );
});

it('takes a text instead of an option, always', () => {
  expect(check([COLOUR], [{ text: 'mauve' }])).toMatchObject({
    notes: null,
    text: 'The user answered:\nColour: mauve',
  });
});

it.each<[string, ShownQuestion[], unknown, string, string]>([
  [
    'too few',
    [COLOUR, WHY],
    [{ text: 'a' }],
    'validation',
    '2 question(s) were asked, 1 answered: answer each, in order',
  ],
  ['neither', [COLOUR], [{}], 'validation', "'Colour' needs a selection or a text"],
  ['an empty selection', [COLOUR], [{ selected_indexes: [] }], 'validation', "'Colour' needs a selection or a text"],
  ['a blank text', [WHY], [{ text: ' ' }], 'validation', "'Why' needs a selection or a text"],
  [
    'both',
    [COLOUR],
    [{ selected_indexes: [0], text: 'a' }],
    'validation',
    "'Colour' takes a selection or a text, not both",
  ],
  ['two of one', [COLOUR], [{ selected_indexes: [0, 1] }], 'validation', "'Colour' takes one option"],
  ['one twice', [SIZES], [{ selected_indexes: [0, 0] }], 'validation', "'Sizes' names an option twice"],
  ['none there', [COLOUR], [{ selected_indexes: [3] }], 'validation', "'Colour' has options 0 to 2"],
  ['a negative one', [COLOUR], [{ selected_indexes: [-1] }], 'validation', "'Colour' has options 0 to 2"],
])('refuses %s', (_, questions, answers, reason, message) => {
  expect(problem(questions, answers)).toMatchObject({ reason, message });
});

it('refuses other forms as malformed', () => {
  for (const answers of ['blue', [{ colour: 1 }], [{ selected_indexes: 'a' }], null])
    expect(problem([COLOUR], answers).reason).toBe('invalid_answers');
});

it('bounds notes and texts', () => {
  expect(problem([WHY], [{ text: 'a' }], 'n'.repeat(4_001)).reason).toBe('validation');
  expect(problem([WHY], [{ text: 'a'.repeat(10_001) }]).reason).toBe('invalid_answers');
});
