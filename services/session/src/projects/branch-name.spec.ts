import { checkedBranch } from './branch-name';

it.each(['main', 'feature/login', 'margay/shop-0a1b2c', 'v1.2', 'ü'])('takes %s for a branch', (name) =>
  expect(checkedBranch('branch', ` ${name} `)).toBe(name),
);

it.each([
  ...['', '-d', '--force', 'a b', 'a..b', 'a~1', 'a^', 'a:b', '/a', 'a/', 'a.', '.a', 'a/.b', 'a.lock', '@', 'a@{1}'],
  ...['a\nb', 'a\\b', 'a*', 'a[', 'x'.repeat(201), 'a//b'],
])('refuses %p as git would, or as an option', (name) =>
  expect(() => checkedBranch('branch', name)).toThrow(expect.objectContaining({ reason: 'bad_request' })),
);
