import type { Socket } from 'node:net';
import { DeadlineExceededError, PermissionDeniedError } from '@margay/errors';

/** `more`: it is cut off; `other`: it is no beginning of TLS. */
export type Hello = { kind: 'more' | 'other' } | { kind: 'hello'; serverName?: string };

const HANDSHAKE = 22;
const CLIENT_HELLO = 1;
const SERVER_NAME = 0;
const RECORD_HEAD = 5;
const MAX_RECORD = 16_384;
const MAX_HELLO = 65_536;
const TLS_MAJOR = 3;
/** A fatal alert: the name of the server is not one that is served. */
const UNRECOGNIZED_NAME = Buffer.from([21, 3, 1, 0, 2, 2, 112]);

/** Reads the name of the server out of the first message of TLS, however it is cut into records. */
export function parseClientHello(bytes: Buffer): Hello {
  const message: Buffer[] = [];
  let length = 0;
  for (let at = 0; ;) {
    const assembled = length >= 4 ? Buffer.concat(message) : undefined;
    if (assembled) {
      const size = 4 + assembled.readUIntBE(1, 3);
      if (assembled[0] !== CLIENT_HELLO || size > MAX_HELLO) return { kind: 'other' };
      if (length >= size) return readHello(assembled.subarray(4, size));
    }
    if (bytes.length > at && bytes[at] !== HANDSHAKE) return { kind: 'other' };
    if (bytes.length > at + 1 && bytes[at + 1] !== TLS_MAJOR) return { kind: 'other' };
    if (bytes.length < at + RECORD_HEAD) return { kind: 'more' };
    const size = bytes.readUInt16BE(at + 3);
    if (size === 0 || size > MAX_RECORD) return { kind: 'other' };
    if (bytes.length < at + RECORD_HEAD + size) return { kind: 'more' };
    message.push(bytes.subarray(at + RECORD_HEAD, at + RECORD_HEAD + size));
    length += size;
    at += RECORD_HEAD + size;
  }
}

function readHello(hello: Buffer): Hello {
  try {
    let at = 2 + 32;
    at += 1 + hello.readUInt8(at); // session id
    at += 2 + hello.readUInt16BE(at); // cipher suites
    at += 1 + hello.readUInt8(at); // compression
    if (at === hello.length) return { kind: 'hello' };
    const end = at + 2 + hello.readUInt16BE(at);
    if (end !== hello.length) return { kind: 'other' };
    const names: string[] = [];
    for (at += 2; at < end;) {
      const size = hello.readUInt16BE(at + 2);
      if (at + 4 + size > end) return { kind: 'other' };
      if (hello.readUInt16BE(at) === SERVER_NAME) names.push(readServerName(hello.subarray(at + 4, at + 4 + size)));
      at += 4 + size;
    }
    // Two of them would leave it to the server which one counts.
    if (names.length > 1) return { kind: 'other' };
    return names[0] === undefined ? { kind: 'hello' } : { kind: 'hello', serverName: names[0] };
  } catch {
    return { kind: 'other' }; // a length leads out of the message
  }
}

/** The list has exactly one entry, of the only type there is. */
function readServerName(list: Buffer): string {
  const size = list.readUInt16BE(3);
  if (list.readUInt16BE(0) !== list.length - 2 || list.readUInt8(2) !== 0 || size !== list.length - 5)
    throw new RangeError('malformed list of server names');
  return list.toString('latin1', 5).toLowerCase();
}

/** Waits for the first message of TLS and returns all that was read. Nothing of it has been passed on. */
export async function demandHello(client: Socket, head: Buffer, host: string, timeoutMs: number): Promise<Buffer> {
  let bytes = head;
  let hello = parseClientHello(bytes);
  const late = setTimeout(() => client.destroy(), timeoutMs);
  try {
    while (hello.kind === 'more') {
      const chunk = await nextChunk(client);
      bytes = Buffer.concat([bytes, chunk]);
      hello = parseClientHello(bytes);
    }
  } finally {
    clearTimeout(late);
  }
  if (hello.kind === 'hello' && hello.serverName === host) return bytes;
  client.write(UNRECOGNIZED_NAME);
  throw new PermissionDeniedError(
    'egress_denied',
    'A tunnel must begin with TLS that names the host it was opened to.',
  );
}

function nextChunk(client: Socket): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const clear = (): void => {
      client.off('data', onData).off('end', onEnd).off('close', onEnd);
      client.pause();
    };
    const onData = (chunk: Buffer): void => {
      clear();
      resolve(chunk);
    };
    const onEnd = (): void => {
      clear();
      reject(new DeadlineExceededError('egress_timeout', 'The client said nothing in the tunnel it had opened.'));
    };
    if (client.destroyed) return onEnd();
    client.on('data', onData).once('end', onEnd).once('close', onEnd);
    client.resume();
  });
}
