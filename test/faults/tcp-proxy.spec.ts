import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { BSON } from 'mongodb';
import { MessageReader, type WireMessage } from './mongo-wire';
import { TcpProxy } from './tcp-proxy';

let server: Server;
let proxy: TcpProxy;
let received: WireMessage[];
const clients: Socket[] = [];

/** Answers every message with one that refers to it. */
beforeEach(async () => {
  received = [];
  server = createServer((socket) => {
    const reader = new MessageReader();
    socket.on('error', () => undefined); // the proxy may cut at any time
    socket.on('data', (chunk: Buffer) => {
      for (const message of reader.read(chunk)) {
        received.push(message);
        socket.write(wireMessage({ ok: 1 }, 1_000 + message.requestId, message.requestId));
      }
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  proxy = await TcpProxy.to((server.address() as AddressInfo).port, { isStore: true });
});
afterEach(async () => {
  for (const client of clients.splice(0)) client.destroy();
  await proxy.close();
  await new Promise((resolve) => server.close(resolve));
});

function wireMessage(body: object, requestId: number, responseTo = 0): Buffer {
  const document = BSON.serialize(body);
  const head = Buffer.alloc(21);
  [21 + document.length, requestId, responseTo, 2013, 0].forEach((value, index) => head.writeInt32LE(value, index * 4));
  return Buffer.concat([head, document]);
}

async function dial(): Promise<{ socket: Socket; answers: number[]; closed: Promise<unknown> }> {
  const [, host = '', port = ''] = /^(.*):(\d+)$/.exec(proxy.address) ?? [];
  const socket = connect({ host, port: Number(port) });
  clients.push(socket);
  const answers: number[] = [];
  const reader = new MessageReader();
  socket.on('data', (chunk: Buffer) => {
    for (const { responseTo } of reader.read(chunk)) answers.push(responseTo);
  });
  socket.on('error', () => undefined); // cut
  const closed = new Promise((resolve) => socket.once('close', resolve));
  await once(socket, 'connect');
  return { socket, answers, closed };
}

async function until(holds: () => boolean): Promise<void> {
  while (!holds()) await new Promise((resolve) => setTimeout(resolve, 5));
}

it('reads messages however their bytes are cut into chunks', () => {
  const bytes = Buffer.concat([wireMessage({ insert: 'commits' }, 1), wireMessage({ find: 'commits' }, 2, 9)]);
  const reader = new MessageReader();
  const read = [...bytes].flatMap((_, at) => [...reader.read(bytes.subarray(at, at + 1))]);
  expect(read.map(({ command, requestId, responseTo }) => [command, requestId, responseTo])).toEqual([
    ['insert', 1, 0],
    ['find', 2, 9],
  ]);
});

it('loses every seventh acknowledgement with its connection, after the server did the write', async () => {
  proxy.dropAcknowledgements(7);
  const { socket, answers, closed } = await dial();
  for (let id = 1; id <= 6; id += 1) {
    socket.write(wireMessage({ find: 'commits' }, 100 + id));
    socket.write(wireMessage({ insert: 'commits' }, id));
    await until(() => answers.includes(id));
  }
  socket.write(wireMessage({ update: 'commits' }, 7));
  await closed;
  expect(answers).not.toContain(7);
  expect(received.map(({ requestId }) => requestId)).toContain(7);
  expect(proxy.dropped).toBe(1);
});

it('holds back what is said in a silence, and lets it through afterwards', async () => {
  const { socket, answers } = await dial();
  socket.write(wireMessage({ ping: 1 }, 1));
  await until(() => answers.length === 1);
  proxy.silence();
  socket.write(wireMessage({ ping: 1 }, 2));
  const later = await dial();
  later.socket.write(wireMessage({ ping: 1 }, 3));
  await new Promise((resolve) => setTimeout(resolve, 50));
  expect([answers, later.answers, received.length]).toEqual([[1], [], 1]);
  proxy.open();
  await until(() => answers.includes(2) && later.answers.includes(3));
});

it('cuts what is open and refuses what comes, until it is opened', async () => {
  const before = await dial();
  proxy.cut();
  await before.closed;
  await (
    await dial()
  ).closed;
  proxy.open();
  const { socket, answers } = await dial();
  socket.write(wireMessage({ ping: 1 }, 1));
  await until(() => answers.length === 1);
});
