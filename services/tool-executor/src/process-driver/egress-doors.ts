import { chmod, chown, mkdir, rm } from 'node:fs/promises';
import { connect, createServer, type Server, type Socket } from 'node:net';
import path from 'node:path';
import { pipeline } from 'node:stream';
import { egressCallerLine } from '@margay/contracts';
import { classOf } from '../driver/sandbox-driver';
import type { SandboxRecord } from './sandbox-records';

/** Of a sandbox's folder; shown inside, where the daemon connects to the socket in it. */
export const EGRESS_FOLDER = 'egress';
export const EGRESS_SOCKET = 'p';

const MAX_CONNECTIONS = 256;

interface Door {
  server: Server;
  sockets: Set<Socket>;
}

/**
 * One socket for each sandbox, shown in that sandbox alone, so that the socket a connection comes from says whose it is.
 * Each connection goes on to the egress proxy behind a line that names the caller.
 */
export class EgressDoors {
  private readonly doors = new Map<string, Door>();

  constructor(
    /** The proxy's private socket; undefined: sandboxes have no way out. */
    private readonly proxySocket: string | undefined,
    /** Folders of sandboxes, by a short name. */
    private readonly base: string,
  ) {}

  get isOpen(): boolean {
    return this.proxySocket !== undefined;
  }

  async open(record: SandboxRecord): Promise<void> {
    if (this.proxySocket === undefined) return;
    const { sandboxId, uid, gid } = record;
    await this.close(sandboxId);
    const folder = path.join(this.base, sandboxId, EGRESS_FOLDER);
    // It stays ours: whoever can write here could make us follow a link.
    await mkdir(folder, { recursive: true, mode: 0o711 });
    const file = path.join(folder, EGRESS_SOCKET);
    await rm(file, { recursive: true, force: true });
    const door = this.makeDoor(record, this.proxySocket);
    this.doors.set(sandboxId, door);
    await new Promise<void>((resolve, reject) => {
      door.server.once('error', reject);
      door.server.listen(file, resolve);
    });
    if (process.getuid?.() === 0) await chown(file, uid, gid);
    await chmod(file, 0o600);
  }

  async close(sandboxId: string): Promise<void> {
    const door = this.doors.get(sandboxId);
    this.doors.delete(sandboxId);
    if (!door) return;
    for (const socket of door.sockets) socket.destroy();
    await new Promise((resolve) => door.server.close(resolve));
  }

  async closeAll(): Promise<void> {
    await Promise.all([...this.doors.keys()].map((sandboxId) => this.close(sandboxId)));
  }

  private makeDoor(record: SandboxRecord, proxySocket: string): Door {
    const { tenantId, sessionId, sandboxId, projectId } = record;
    const sockets = new Set<Socket>();
    const keep = (socket: Socket): void => {
      sockets.add(socket);
      socket.once('close', () => sockets.delete(socket));
    };
    const project = projectId === undefined ? {} : { projectId };
    const line = egressCallerLine({ tenantId, sessionId, sandboxId, ...project, sandboxClass: classOf(record) });
    const server = createServer({ allowHalfOpen: true }, (client) => {
      const proxy = connect({ path: proxySocket, allowHalfOpen: true });
      for (const socket of [client, proxy]) keep(socket);
      proxy.write(line);
      const done = (error?: Error | null): void => {
        // One side that ended well may still hear the other.
        if (!error) return;
        client.destroy();
        proxy.destroy();
      };
      pipeline(client, proxy, done);
      pipeline(proxy, client, done);
    });
    server.maxConnections = MAX_CONNECTIONS;
    // A door does not keep this process alive.
    server.unref();
    return { server, sockets };
  }
}
