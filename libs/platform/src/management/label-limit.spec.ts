import { LabelLimit } from './label-limit';

it('keeps the first values and puts all later ones together', () => {
  const limit = new LabelLimit(2);
  expect(['a', 'b', 'c', 'a', 'd'].map((value) => limit.of(value))).toEqual(['a', 'b', 'other', 'a', 'other']);
});
