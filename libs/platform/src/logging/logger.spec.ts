import { InternalError, NotFoundError } from '@margay/errors';
import { hideInLogs } from './hidden-values';
import { createLogger, setLogLevel, type LogLevel } from './logger';

const canary = 'canary-7f3a';
const key = `mk_local_${'a'.repeat(32)}_${'S'.repeat(43)}`;

function capture(level: LogLevel = 'debug') {
  const lines: Record<string, unknown>[] = [];
  const raw: string[] = [];
  const write = (line: string) => {
    raw.push(line);
    lines.push(JSON.parse(line) as Record<string, unknown>);
  };
  return { logger: createLogger({ service: 'session', level, instance: 'i1', version: '1.2.3', write }), lines, raw };
}

describe('createLogger', () => {
  it('writes one JSON line with service, instance, version, level word, time and bound fields', () => {
    const { logger, lines } = capture();
    logger.child({ tenantId: 'acme', sessionId: 's1' }).info({ runId: 's1:r1' }, 'run accepted');
    expect(lines).toEqual([
      expect.objectContaining({
        level: 'info',
        time: expect.stringMatching(/^\d{4}-.*Z$/),
        service: 'session',
        instance: 'i1',
        version: '1.2.3',
        tenantId: 'acme',
        sessionId: 's1',
        runId: 's1:r1',
        msg: 'run accepted',
      }),
    ]);
  });

  it('keeps the fields of one line out of the next', () => {
    const { logger, lines } = capture();
    logger.info({ runId: 's1:r1' }, 'first');
    logger.info('second');
    expect(lines[1]).not.toHaveProperty('runId');
  });

  it.each([
    ['a secret field', { apiKey: canary }],
    ['a header, whatever its spelling', { request: { headers: { 'X-API-KEY': canary } } }],
    ['authorization deep inside', { a: { b: { c: [{ Authorization: canary }] } } }],
    ['a prompt', { messages: [{ role: 'user', content: canary }] }],
    ['tool input', { call: { tool: 'shell', input: { command: canary } } }],
    ['a tool result', { result: canary }],
    ['the query of an address', { url: `https://api.example.test/v1?ticket=${canary}` }],
    ['the query of a path', { path: `/api/sessions?api_key=${canary}` }],
    ['the password of an address', { target: `mongodb://margay:${canary}@127.0.0.1:27017/x` }],
    ['a bearer token in a text', { note: `sent Bearer ${canary}${canary}` }],
    ['an error message', { err: new Error(`GET https://example.test/x?key=${canary} failed`) }],
    ['the details of an error', { err: new NotFoundError('x', 'x', { details: { key: canary } }) }],
  ])('never shows %s', (_, fields) => {
    const { logger, raw } = capture();
    logger.error(fields, 'something happened');
    expect(raw).toHaveLength(1);
    expect(raw[0]).not.toContain(canary);
  });

  it('never shows a key, not even in the sentence or a bound field', () => {
    const { logger, raw } = capture();
    logger.child({ note: key }).warn(`key ${key} refused`);
    expect(raw[0]).not.toContain('S'.repeat(43));
    expect(raw[0]).toContain(`mk_local_${'a'.repeat(32)}`);
  });

  it.each([
    ['of a host of repositories', `ghp_${'a'.repeat(36)}`],
    ['of a chat', `xoxb-${'1'.repeat(12)}-abc`],
    ['of a cloud', `AKIA${'Q'.repeat(16)}`],
    [
      'that is a private key',
      `-----BEGIN PRIVATE KEY-----\n${canary.replaceAll('-', '')}\n-----END PRIVATE KEY-----\n`,
    ],
  ])('never shows a token %s', (_, token) => {
    const { logger, raw, lines } = capture();
    logger.warn({ note: `found ${token}` }, 'odd');
    expect(raw[0]).not.toContain(JSON.stringify(token).slice(1, -1));
    expect(lines[0]?.note).toContain('[redacted]');
  });

  it('never shows a value that this process has in its hands, however it is spelt', () => {
    hideInLogs('git/team', `in-hands"${canary}`);
    const { logger, lines } = capture();
    const err = new Error(`refused in-hands"${canary}`);
    logger.error({ err, note: Buffer.from(`in-hands"${canary}`).toString('base64') }, `sent in-hands"${canary}`);
    expect(JSON.stringify(lines)).not.toContain('in-hands');
    expect(lines[0]).toMatchObject({ msg: 'sent [secret:git/team]', err: { message: 'refused [secret:git/team]' } });
    expect(lines[0]?.note).toContain('[secret:git/team]');
  });

  it('stays JSON where a number is such a value', () => {
    hideInLogs('pin', '4711081512');
    const { logger, lines } = capture();
    logger.warn({ count: 4711081512 }, 'counted');
    expect(lines[0]).toMatchObject({ count: '[secret:pin]', msg: 'counted' });
  });

  it('never shows such a value in a line that is no JSON any more, nor fails', () => {
    hideInLogs('git/team', `in-hands"${canary}`);
    const raw: string[] = [];
    const logger = createLogger({ write: (line) => void raw.push(line) });
    logger.warn({ note: '-----BEGIN PRIVATE KEY-----abc"' }, `sent in-hands"${canary}`);
    expect(raw.join()).toContain('sent [secret:git/team]');
  });

  it('never shows a secret field bound by a child logger', () => {
    const { logger, raw } = capture();
    logger.child({ apiKey: `${canary}"\\` }).warn('bound');
    expect(raw[0]).not.toContain(canary);
    expect(JSON.parse(raw[0] as string)).toMatchObject({ apiKey: '[redacted]', msg: 'bound' });
  });

  it('takes no longer than a moment for a hostile text', () => {
    const { logger, raw } = capture();
    const startedAt = process.cpuUsage().user;
    logger.warn({ path: '/'.repeat(50_000), host: 'a.'.repeat(50_000), note: 'eyJ-'.repeat(20_000) }, 'odd');
    expect(raw).toHaveLength(1);
    expect(process.cpuUsage().user - startedAt).toBeLessThan(1_000_000);
  });

  it('shows expected errors by code and reason, internal ones with stack and cause', () => {
    const { logger, lines } = capture();
    logger.info({ err: new NotFoundError('session_unknown', 'There is no session s1.') }, 'refused');
    logger.error(
      { err: new InternalError('internal', 'Broken.', { cause: new TypeError('x is undefined') }) },
      'failed',
    );
    expect(lines[0]?.err).toEqual({
      type: 'NotFoundError',
      code: 'NOT_FOUND',
      reason: 'session_unknown',
      message: 'There is no session s1.',
    });
    expect(lines[1]?.err).toMatchObject({
      stack: expect.stringContaining('logger.spec'),
      cause: { type: 'TypeError', message: 'x is undefined' },
    });
  });

  it('is silent at level off and changes its level while running', () => {
    const { logger, lines } = capture('off');
    logger.error('lost');
    setLogLevel(logger, 'warn');
    logger.info('lost too');
    logger.warn('seen');
    expect(lines.map(({ msg }) => msg)).toEqual(['seen']);
  });
});
