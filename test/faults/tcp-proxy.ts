import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { isWrite, MessageReader } from './mongo-wire';

/** The way from one process to one server, which faults can lie on. */
export class TcpProxy {
  private readonly server: Server;
  private readonly pairs = new Set<[client: Socket, server: Socket]>();
  private mode: 'open' | 'cut' | 'silent' = 'open';
  /** Every so many acknowledgements one is lost; 0: none is. */
  private dropEvery = 0;
  private acknowledged = 0;
  /** Acknowledgements lost so far. */
  dropped = 0;

  private constructor(
    private readonly port: number,
    private readonly isStore: boolean,
  ) {
    this.server = createServer({ noDelay: true }, (client) => this.accept(client));
  }

  /** @param port of the server on loopback */
  static async to(port: number, { isStore = false } = {}): Promise<TcpProxy> {
    const proxy = new TcpProxy(port, isStore);
    await new Promise<void>((resolve) => proxy.server.listen(0, '127.0.0.1', resolve));
    return proxy;
  }

  get address(): string {
    return `127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  /** Ends all connections and refuses new ones. */
  cut(): void {
    this.mode = 'cut';
    this.destroyAll();
  }

  /** Holds back all bytes in both directions; new connections are accepted and hear nothing. */
  silence(): void {
    this.mode = 'silent';
    for (const pair of this.pairs) for (const side of pair) side.pause();
  }

  /** What was held back comes through. */
  open(): void {
    this.mode = 'open';
    for (const pair of this.pairs) for (const side of pair) side.resume();
  }

  /**
   * For a document store: every so many acknowledgements one is lost, together with its connection, after the write was
   * done. 0 stops it.
   */
  dropAcknowledgements(every: number): void {
    this.dropEvery = every;
  }

  async close(): Promise<void> {
    this.destroyAll();
    await new Promise((resolve) => this.server.close(resolve));
  }

  private accept(client: Socket): void {
    if (this.mode === 'cut') return void client.destroy();
    const server = connect({ host: '127.0.0.1', port: this.port, noDelay: true });
    const pair: [Socket, Socket] = [client, server];
    this.pairs.add(pair);
    const end = (): void => {
      this.pairs.delete(pair);
      for (const side of pair) side.destroy();
    };
    const replies = this.isStore ? this.watch(client) : undefined;
    client.on('data', (chunk: Buffer) => this.pass(chunk, client, server));
    server.on('data', (chunk: Buffer) => {
      if (replies?.(chunk)) end();
      else this.pass(chunk, server, client);
    });
    // Both sides end together: by the close that follows each of these.
    for (const side of pair) side.on('error', () => undefined).on('close', end);
    if (this.mode === 'silent') for (const side of pair) side.pause();
  }

  /** @returns tells of replies whether one of them is an acknowledgement that gets lost */
  private watch(client: Socket): (chunk: Buffer) => boolean {
    const writes = new Set<number>();
    const [requests, replies] = [new MessageReader(), new MessageReader()];
    client.on('data', (chunk: Buffer) => {
      for (const message of requests.read(chunk)) if (isWrite(message)) writes.add(message.requestId);
    });
    return (chunk) => {
      const answered = [...replies.read(chunk)].filter(({ responseTo }) => writes.delete(responseTo));
      return answered.some(() => this.isLost());
    };
  }

  private isLost(): boolean {
    if (this.dropEvery === 0) return false;
    this.acknowledged += 1;
    if (this.acknowledged % this.dropEvery !== 0) return false;
    this.dropped += 1;
    return true;
  }

  /** With the pressure of whoever reads slowly. */
  private pass(chunk: Buffer, from: Socket, to: Socket): void {
    if (to.write(chunk)) return;
    from.pause();
    to.once('drain', () => {
      if (this.mode === 'open') from.resume();
    });
  }

  private destroyAll(): void {
    for (const pair of this.pairs) for (const side of pair) side.destroy();
  }
}
