import { scrubText } from './redaction';

describe('what logs are scrubbed of', () => {
  it.each([
    [`a key mk_local_${'a'.repeat(32)}_${'B'.repeat(43)} there`, `a key mk_local_${'a'.repeat(32)}_[redacted] there`],
    ['sk-proj-abcdefgh12345678', 'sk-[redacted]'],
    ['Authorization: Bearer abcdefgh12345678', 'Authorization: Bearer [redacted]'],
    ['mongodb://root:hunter2@store:27017/x', 'mongodb://[redacted]@store:27017/x'],
    ['GET /stream?after=1&api_key=abc', 'GET /stream?[redacted]'],
    ['{"password":"x y","n":1}', '{"password":"[redacted]","n":1}'],
    ['glpat-abcdefgh12345678', 'glpat-[redacted]'],
    ['a -----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY----- b', 'a [redacted] b'],
    ['-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nabc=', '[redacted]'],
  ])('hides the secret in %j', (text, scrubbed) => {
    expect(scrubText(text)).toBe(scrubbed);
  });

  it('leaves the rest alone', () => {
    const text = '{"msg":"token refreshed","sessionId":"ab12","url":"http://store:27017/x","tokens":7}';
    expect(scrubText(text)).toBe(text);
  });
});
