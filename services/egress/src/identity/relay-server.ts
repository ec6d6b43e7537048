import { chmod, mkdir, rm } from 'node:fs/promises';
import { createServer, type Server, type Socket } from 'node:net';
import path from 'node:path';
import { EGRESS_CALLER_LINE_BYTES, EgressCaller } from '@margay/contracts';
import { InvalidArgumentError } from '@margay/errors';

const LINE_TIMEOUT_MS = 5_000;
/** The longest path a socket may have. */
const MAX_PATH = 107;
const NEWLINE = 10;

/**
 * The proxy's private socket on one machine. Whoever can open it may speak for any sandbox, so it lies in a folder that
 * only this user enters. The first line of a connection says for whom it is; what follows goes to the proxy.
 */
export class RelayServer {
  private readonly callers = new WeakMap<Socket, EgressCaller>();
  private readonly waiting = new Set<Socket>();
  private readonly server: Server;

  constructor(private readonly onConnection: (socket: Socket) => void) {
    this.server = createServer({ allowHalfOpen: true }, (socket) => this.take(socket));
  }

  callerOf(socket: Socket): EgressCaller | undefined {
    return this.callers.get(socket);
  }

  async listen(file: string): Promise<void> {
    if (Buffer.byteLength(file) > MAX_PATH)
      throw new InvalidArgumentError('egress_socket', `The path ${file} is too long for a socket; use a shorter one.`);
    await mkdir(path.dirname(file), { recursive: true, mode: 0o700 });
    await chmod(path.dirname(file), 0o700);
    await rm(file, { force: true });
    await new Promise<void>((resolve, reject) => {
      this.server.once('error', reject);
      this.server.listen(file, resolve);
    });
  }

  async close(): Promise<void> {
    for (const socket of this.waiting) socket.destroy();
    if (!this.server.listening) return;
    // Connections that were handed on are the proxy's.
    this.server.close();
  }

  private take(socket: Socket): void {
    let bytes = Buffer.alloc(0);
    this.waiting.add(socket);
    const timer = setTimeout(() => socket.destroy(), LINE_TIMEOUT_MS);
    const done = (): void => {
      clearTimeout(timer);
      this.waiting.delete(socket);
      socket.off('data', onData);
    };
    const onData = (chunk: Buffer): void => {
      bytes = Buffer.concat([bytes, chunk]);
      const end = bytes.indexOf(NEWLINE);
      if (end < 0 && bytes.length <= EGRESS_CALLER_LINE_BYTES) return;
      done();
      const caller = end < 0 ? undefined : parseLine(bytes.subarray(0, end));
      if (!caller) return void socket.destroy();
      socket.pause();
      this.callers.set(socket, caller);
      if (bytes.length > end + 1) socket.unshift(bytes.subarray(end + 1));
      this.onConnection(socket);
      socket.resume();
    };
    socket.on('error', () => undefined); // its end is noticed where it is read
    socket.once('close', done);
    socket.on('data', onData);
  }
}

function parseLine(line: Buffer): EgressCaller | undefined {
  try {
    return EgressCaller.safeParse(JSON.parse(line.toString())).data;
  } catch {
    return undefined; // not JSON
  }
}
