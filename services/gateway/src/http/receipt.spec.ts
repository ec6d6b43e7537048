import { connect, type Socket } from 'node:net';
import { GatewayHarness } from '../spec/gateway-harness';

describe('a request whose body does not come', () => {
  const harness = new GatewayHarness();
  const sockets: Socket[] = [];
  beforeAll(() => harness.start({ receipt: { usualMs: 200, uploadMs: 600_000 } }));
  afterAll(async () => {
    for (const socket of sockets) socket.destroy();
    await harness.stop();
  });

  /** Sends the head and the beginning of a body. */
  function begin(path: string, type: string, first: string, bytes: number) {
    const head = [
      `POST ${path} HTTP/1.1`,
      'Host: x',
      `X-API-KEY: ${harness.key.text}`,
      `Content-Type: ${type}`,
      `Content-Length: ${bytes}`,
      'Connection: close',
    ];
    const socket = connect(harness.gateway.port, '127.0.0.1', () =>
      socket.write(`${head.join('\r\n')}\r\n\r\n${first}`),
    );
    sockets.push(socket);
    const answer = new Promise<string>((resolve, reject) => {
      let text = '';
      socket.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
      socket.on('close', () => resolve(text)).on('error', reject);
    });
    return { socket, answer };
  }

  it('is refused soon, but waited for where files are sent', async () => {
    const upload = begin(`/api/workspaces/${harness.workspaces.workspaceId}/content`, 'application/x-tar', 'a', 4);
    const late = await begin('/api/sessions', 'application/json', '{', 2).answer;
    expect(late).toMatch(/^HTTP\/1.1 408 /);
    expect(late).toMatch(/^x-margay-reason: deadline_exceeded\r$/im);
    const error = { code: 408, reason: 'the request did not come in time', retryable: false };
    expect(JSON.parse(late.slice(late.indexOf('\r\n\r\n')))).toEqual({ error });
    expect(harness.session.calls.map(({ method }) => method)).not.toContain('createSession');
    upload.socket.write('bcd');
    expect(await upload.answer).toMatch(/^HTTP\/1.1 202 /);
  });

  it('gets one answer where nothing is served', async () => {
    const answer = await begin('/api/nothing', 'application/json', '{', 2).answer;
    expect(answer.match(/HTTP\/1.1 \d+/g)).toHaveLength(1);
  });
});
