import type { SandboxEndpoint } from '../driver/sandbox-driver';
import { SandboxConnection } from './sandbox-connection';

/** Ways into sandboxes. Those that are likely to be claimed next are opened beforehand, which saves claims the handshake. */
export class SandboxConnections {
  /** By audience. */
  private readonly waiting = new Map<string, SandboxConnection>();
  private isClosed = false;

  /** @param greet makes the connection carry something, so that it stands */
  constructor(private readonly greet: (connection: SandboxConnection) => Promise<unknown>) {}

  /** One that stands already, or a new one; the caller closes it. */
  async open(endpoint: SandboxEndpoint): Promise<SandboxConnection> {
    const known = this.waiting.get(endpoint.audience);
    if (!known) return SandboxConnection.open(endpoint);
    this.waiting.delete(endpoint.audience);
    return known;
  }

  /** These, and no others, are open beforehand. One that does not answer is left to whoever claims it. */
  async keep(endpoints: readonly SandboxEndpoint[]): Promise<void> {
    const wanted = new Set(endpoints.map(({ audience }) => audience));
    for (const [audience, connection] of this.waiting) if (!wanted.has(audience)) this.drop(audience, connection);
    const missing = endpoints.filter(({ audience }) => !this.waiting.has(audience));
    await Promise.allSettled(missing.map((endpoint) => this.add(endpoint)));
  }

  close(): void {
    this.isClosed = true;
    for (const [audience, connection] of this.waiting) this.drop(audience, connection);
  }

  private async add(endpoint: SandboxEndpoint): Promise<void> {
    const connection = await SandboxConnection.open(endpoint);
    try {
      await this.greet(connection);
    } catch (error) {
      connection.close();
      throw error;
    }
    if (this.isClosed || this.waiting.has(endpoint.audience)) return connection.close();
    this.waiting.set(endpoint.audience, connection);
  }

  private drop(audience: string, connection: SandboxConnection): void {
    this.waiting.delete(audience);
    connection.close();
  }
}
