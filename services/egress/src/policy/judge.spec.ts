import { EgressPolicy, type EgressMode } from '@margay/contracts';
import { judge, type Target } from './judge';

const caller = { tenantId: 't1', sandboxId: 'b1', projectId: 'site', sandboxClass: 'default' };
const at = (host: string, port = 443): Target => ({ host, port });
const reading = (host: string, method: string, path: string): Target => ({ host, port: 80, request: { method, path } });

function verdictOf(policy: object, target: Target, maxMode: EgressMode = 'public') {
  const verdict = judge(EgressPolicy.parse(policy), maxMode, target, caller);
  return verdict.isAllowed ? verdict.rule : verdict.why;
}

describe('judging a target', () => {
  const packages = { id: 'packages', hosts: ['packages.example.com', '*.cdn.example.com'] };

  it('denies what no rule names', () => {
    const policy = { rules: [packages] };
    expect(verdictOf(policy, at('packages.example.com'))).toBe('packages');
    expect(verdictOf(policy, at('a.cdn.example.com'))).toBe('packages');
    expect(verdictOf(policy, at('cdn.example.com'))).toBe('no_rule');
    expect(verdictOf(policy, at('packages.example.com', 8443))).toBe('no_rule');
    expect(verdictOf({}, at('packages.example.com'))).toBe('no_rule');
  });

  it('lets the first matching rule decide', () => {
    const rules = [packages, { id: 'later', hosts: ['packages.example.com'], ports: [443, 8443] }];
    expect(verdictOf({ rules }, at('packages.example.com'))).toBe('packages');
    expect(verdictOf({ rules }, at('packages.example.com', 8443))).toBe('later');
  });

  it('denies everything in the mode none, and lets nothing be wider than the operator allows', () => {
    expect(verdictOf({ mode: 'none', rules: [packages] }, at('packages.example.com'))).toBe('mode_none');
    expect(verdictOf({ mode: 'public' }, at('other.example'))).toBe('public');
    expect(verdictOf({ mode: 'public' }, at('other.example', 8443))).toBe('public');
    expect(verdictOf({ mode: 'public' }, reading('other.example', 'POST', '/'))).toBe('public');
    expect(verdictOf({ mode: 'public' }, { ...reading('other.example', 'POST', '/'), port: 25 })).toBe('no_rule');
    expect(verdictOf({ mode: 'public' }, at('other.example'), 'allowlist')).toBe('no_rule');
    expect(verdictOf({ mode: 'allowlist', rules: [packages] }, at('packages.example.com'), 'none')).toBe('mode_none');
  });

  it('lets nobody evade a rule in the mode public: what it names, it alone decides', () => {
    const read = { ...packages, intercept: true, methods: ['GET'] };
    const asking = (more: object, target: Target) =>
      verdictOf({ mode: 'public', rules: [{ ...read, ...more }] }, target);
    const post = { ...reading('packages.example.com', 'POST', '/'), isEncrypted: true };
    expect(asking({}, { ...post, port: 443 })).toBe('no_rule');
    expect(asking({}, post)).toBe('no_rule');
    expect(asking({}, at('packages.example.com', 8443))).toBe('no_rule');
    expect(asking({}, at('other.example.com', 8443))).toBe('public');
    expect(asking({ projects: ['shop'] }, at('packages.example.com'))).toBe('public');
  });

  it('holds rules to their projects and classes', () => {
    const only = (more: object) => ({ rules: [{ ...packages, ...more }] });
    expect(verdictOf(only({ projects: ['site'] }), at('packages.example.com'))).toBe('packages');
    expect(verdictOf(only({ projects: ['shop'] }), at('packages.example.com'))).toBe('no_rule');
    expect(verdictOf(only({ classes: ['strict'] }), at('packages.example.com'))).toBe('no_rule');
  });

  describe('by method and path', () => {
    const git = { id: 'git', hosts: ['git.example.com'], ports: [80, 443], intercept: true, methods: ['GET'], paths: ['/team/**'] }; // prettier-ignore

    it('reads requests in the clear', () => {
      const policy = { rules: [git] };
      expect(verdictOf(policy, reading('git.example.com', 'GET', '/team/.well-known/x'))).toBe('git');
      expect(verdictOf(policy, reading('git.example.com', 'POST', '/team/x'))).toBe('no_rule');
      expect(verdictOf(policy, reading('git.example.com', 'GET', '/other/x'))).toBe('no_rule');
    });

    it.each([
      '/team/..%2fother',
      '/team/..%5Cother',
      '/team//x',
      '/team/\\x',
      '/team/%00',
      '/team/..;/other',
      '/team/.;a=1/other',
      '/team/%252e%252e%252fother',
      '/team/%25252fother',
    ])('trusts no pattern with %j, which servers read differently', (path) => {
      expect(verdictOf({ rules: [git] }, reading('git.example.com', 'GET', path))).toBe('no_rule');
    });

    it('has tunnels read whose requests it needs, even if a later rule is laxer', () => {
      const rules = [git, { id: 'lax', hosts: ['git.example.com'] }];
      expect(verdictOf({ rules }, at('git.example.com'))).toBe('git');
    });

    it('is refused where requests would not be read', () => {
      const rules = [{ ...git, intercept: false }];
      expect(EgressPolicy.safeParse({ rules }).error?.issues[0]?.message).toContain('need intercept: true');
    });
  });

  it.each([
    [{ rules: [{ id: 'a', hosts: ['a.example'], inject: { credential: 'x', as: 'basic' } }] }],
    [{ rules: [packages, packages] }],
    [{ rules: [{ id: 'a', hosts: ['127.0.0.1'] }] }],
    [{ rules: [{ id: 'a', hosts: ['a.example'], ports: [0] }] }],
    [{ rules: [{ ...packages, intercept: true, paths: ['/{a,b}/**'] }] }],
    [{ rules: [{ ...packages, intercept: true, paths: ['/+(a|b)'] }] }],
    [{ mode: 'all' }],
    [{ limits: { connections: 0 } }],
  ])('refuses the policy %j', (policy) => {
    expect(EgressPolicy.safeParse(policy).success).toBe(false);
  });
});
