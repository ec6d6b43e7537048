import { createServer, connect, type AddressInfo, type Server, type Socket } from 'node:net';

/** A way to a server that can be shut and opened again, as an outage does. */
export class TcpGate {
  private readonly sockets = new Set<Socket>();
  private readonly server: Server;
  private isOpen = true;

  constructor(private readonly target: { host: string; port: number }) {
    this.server = createServer((socket) => this.pass(socket));
  }

  async start(): Promise<number> {
    await new Promise<void>((resolve) => this.server.listen(0, '127.0.0.1', resolve));
    return (this.server.address() as AddressInfo).port;
  }

  shut(): void {
    this.isOpen = false;
    for (const socket of this.sockets) socket.destroy();
  }

  open(): void {
    this.isOpen = true;
  }

  async stop(): Promise<void> {
    this.shut();
    await new Promise((resolve) => this.server.close(resolve));
  }

  private pass(socket: Socket): void {
    if (!this.isOpen) return void socket.destroy();
    const onward = connect(this.target);
    for (const side of [socket, onward]) {
      this.sockets.add(side);
      side.on('error', () => undefined); // the other side is closed below
      side.on('close', () => {
        this.sockets.delete(side);
        socket.destroy();
        onward.destroy();
      });
    }
    socket.pipe(onward).pipe(socket);
  }
}
