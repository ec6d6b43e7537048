import { once } from 'node:events';
import { createServer, type AddressInfo, type Server } from 'node:net';
import { connect } from 'node:tls';
import { parseClientHello } from './client-hello';

let server: Server;
beforeAll(() => new Promise<void>((resolve) => (server = createServer().listen(0, '127.0.0.1', resolve))));
afterAll(() => new Promise((resolve) => server.close(resolve)));

/** What Node really says first. */
async function realHello(servername?: string): Promise<Buffer> {
  const { port } = server.address() as AddressInfo;
  const client = connect({ host: '127.0.0.1', port, ...(servername !== undefined && { servername }) });
  client.on('error', () => undefined);
  const [socket] = (await once(server, 'connection')) as [import('node:net').Socket];
  const [bytes] = (await once(socket, 'data')) as [Buffer];
  client.destroy();
  socket.destroy();
  return bytes;
}

/** The same message in records of that many bytes. */
function cut(hello: Buffer, size: number): Buffer {
  const records: Buffer[] = [];
  for (let at = 5; at < hello.length; at += size) {
    const part = hello.subarray(at, at + size);
    records.push(Buffer.from([22, 3, 1, part.length >> 8, part.length & 255]), part);
  }
  return Buffer.concat(records);
}

describe('the first message of TLS', () => {
  it('tells the name of the server', async () => {
    const bytes = await realHello('git.example.com');
    expect(parseClientHello(bytes)).toEqual({ kind: 'hello', serverName: 'git.example.com' });
    for (const size of [1, 3, 100])
      expect(parseClientHello(cut(bytes, size))).toEqual({ kind: 'hello', serverName: 'git.example.com' });
  });

  it('may have no name', async () => {
    expect(parseClientHello(await realHello())).toEqual({ kind: 'hello' });
  });

  it('is waited for wherever it is cut off', async () => {
    const bytes = await realHello('git.example.com');
    for (let length = 0; length < bytes.length; length += 1)
      expect(parseClientHello(bytes.subarray(0, length))).toEqual({ kind: 'more' });
  });

  it('is not mistaken for anything else', async () => {
    for (const text of ['GET / HTTP/1.1\r\n\r\n', 'SSH-2.0-x', '\x16\x02', '\x16\x03\x01\x00\x00', '\x00'])
      expect(parseClientHello(Buffer.from(text, 'latin1'))).toEqual({ kind: 'other' });
  });

  it('survives every damaged byte without an exception', async () => {
    const bytes = await realHello('git.example.com');
    for (let at = 0; at < bytes.length; at += 1) {
      const damaged = Buffer.from(bytes);
      damaged[at] = (damaged[at] ?? 0) ^ 0xff;
      expect(['hello', 'more', 'other']).toContain(parseClientHello(damaged).kind);
    }
  });
});
