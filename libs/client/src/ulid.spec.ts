import { ulid } from './ulid';

it('is 26 characters of Crockford base 32 that sort by time', () => {
  const ids = [1, 1_700_000_000_000, 1_700_000_000_001].map(ulid);
  for (const id of ids) expect(id).toMatch(/^[0-9A-HJKMNP-TV-Z]{26}$/);
  expect([...ids].sort()).toEqual(ids);
  expect(ulid(1_469_918_176_385).slice(0, 10)).toBe('01ARYZ6S41');
});

it('never repeats within a millisecond', () => {
  expect(new Set(Array.from({ length: 10_000 }, () => ulid(1))).size).toBe(10_000);
});
