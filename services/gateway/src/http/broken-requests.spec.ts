import { connect } from 'node:net';
import { GatewayHarness } from '../spec/gateway-harness';

describe('what is no request', () => {
  let harness: GatewayHarness;
  beforeEach(async () => {
    harness = new GatewayHarness();
    await harness.start();
  });
  afterEach(() => harness.stop());

  it.each([
    ['no HTTP', 'HELLO\r\n\r\n', 400],
    ['an unknown method', 'FOO /healthz HTTP/1.1\r\nHost: x\r\n\r\n', 400],
    ['two lengths', 'POST /api/sessions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}', 400],
    ['headers above 16 KB', `GET /healthz HTTP/1.1\r\nHost: x\r\nX-A: ${'a'.repeat(20_000)}\r\n\r\n`, 431],
    ['an expectation', 'GET /healthz HTTP/1.1\r\nHost: x\r\nExpect: wonders\r\nConnection: close\r\n\r\n', 417],
  ])('gets the usual error: %s', async (_, text, status) => {
    const answer = await sent(harness.gateway.port, text);
    expect(answer).toMatch(new RegExp(`^HTTP/1.1 ${status} `));
    expect(answer).toMatch(/^x-request-id: \S+/im);
    const error = { code: status, reason: expect.any(String) as string, retryable: false };
    expect(JSON.parse(answer.slice(answer.indexOf('\r\n\r\n')))).toEqual({ error });
  });

  it.each([
    ['Content-Encoding', { 'Content-Encoding': 'gzip' }],
    ['Content-Type', { 'Content-Type': '%%%' }],
  ])('gets 415 for bodies whose %s is not understood', async (name, headers) => {
    const answer = await harness.request('POST', '/api/sessions', { rawBody: '{}', headers });
    expect([answer.status, answer.body]).toEqual([415, { message: expect.stringContaining(`'${name}'`) as string }]);
  });
});

function sent(port: number, text: string): Promise<string> {
  return new Promise((resolve, reject) => {
    let answer = '';
    const socket = connect(port, '127.0.0.1', () => socket.write(text));
    socket.setEncoding('utf8').on('data', (chunk: string) => (answer += chunk));
    socket.on('close', () => resolve(answer)).on('error', reject);
  });
}
