import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { request, type IncomingHttpHeaders } from 'node:http';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { egressCallerLine, type EgressCaller } from '@margay/contracts';
import { createLogger, ManagementServer, type RunningService } from '@margay/platform';
import type { AuditLine } from './audit/egress-audit';
import { Credentials, type Credential, type CredentialQuery } from './inject/credential';
import { startEgress } from './start-egress';

const CALLER: EgressCaller = { tenantId: 't1', sessionId: 's1', sandboxId: 'b1' };

export interface Answer {
  status: number;
  headers: IncomingHttpHeaders;
  body: string;
}

/** Secrets by name, or by the path of a repository; `queries` are those that were not answered from the cache. */
export class MemoryCredentials extends Credentials {
  readonly all = new Map<string, Credential>();
  readonly queries: CredentialQuery[] = [];

  async find(query: CredentialQuery): Promise<Credential | undefined> {
    this.queries.push(query);
    return this.all.get(query.name ?? `/${query.repository}`);
  }
}

/** For specs: the service with a policy file of its own, and names that lead where the spec says. */
export class EgressFixture {
  readonly folder = mkdtempSync(path.join(tmpdir(), 'margay-egress-'));
  readonly socketFile = path.join(this.folder, 'private', 'relay.sock');
  /** Addresses by name; a list of lists changes from one look-up to the next. */
  readonly names = new Map<string, string[]>();
  readonly lookups: string[] = [];
  readonly credentials = new MemoryCredentials();
  readonly lines: string[] = [];
  readonly policyFile = path.join(this.folder, 'policy.json');
  private readonly logger = createLogger({ level: 'info', write: (line) => this.lines.push(line) });
  private readonly management = new ManagementServer({ listen: '127.0.0.1:0', logger: this.logger });
  private readonly closers: (() => Promise<void>)[] = [];
  private running?: RunningService;

  async start(settings: object, more: Record<string, string> = {}): Promise<this> {
    this.setPolicy(settings);
    const environment = {
      MARGAY_EGRESS_POLICY_FILE: this.policyFile,
      MARGAY_EGRESS_LOCAL_SOCKET: this.socketFile,
      MARGAY_EGRESS_DRAIN_SECONDS: '0.3',
      MARGAY_EGRESS_POLICY_LOOK_SECONDS: '0.1',
      ...more,
    };
    const shared = { logger: this.logger, management: this.management };
    const resolve = async (host: string): Promise<string[]> => {
      this.lookups.push(host);
      const addresses = this.names.get(host);
      if (addresses) return addresses;
      throw Object.assign(new Error('no such name'), { code: 'ENOTFOUND' });
    };
    this.running = await startEgress(environment, shared, { resolve, credentials: this.credentials });
    return this;
  }

  setPolicy(settings: object): void {
    writeFileSync(this.policyFile, JSON.stringify(settings));
  }

  /** Has `close` called at the end; answers the port. */
  async serve(server: Server): Promise<number> {
    const sockets = new Set<Socket>();
    server.on('connection', (socket) => sockets.add(socket));
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    this.closers.push(async () => {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    });
    return (server.address() as AddressInfo).port;
  }

  /** A server of bare TCP. */
  serveTcp(onConnection: (socket: Socket) => void): Promise<number> {
    return this.serve(createServer({ allowHalfOpen: true }, onConnection));
  }

  /** A connection that speaks to the proxy for a caller. */
  connect(caller: EgressCaller = CALLER): Socket {
    const socket = connect({ path: this.socketFile, allowHalfOpen: true });
    socket.on('error', () => undefined);
    socket.write(egressCallerLine(caller));
    this.closers.push(async () => void socket.destroy());
    return socket;
  }

  async get(url: string, options: { method?: string; headers?: object; body?: string; caller?: EgressCaller } = {}) {
    const { method = 'GET', headers, body, caller } = options;
    return new Promise<Answer>((resolve, reject) => {
      const outgoing = request({
        createConnection: () => this.connect(caller),
        method,
        path: url,
        headers: { Host: 'ignored.example', ...headers },
      });
      outgoing.once('error', reject).once('response', (response) => {
        text(response).then(
          (all) => resolve({ status: response.statusCode ?? 0, headers: response.headers, body: all }),
          reject,
        );
      });
      outgoing.end(body);
    });
  }

  /** Opens a tunnel: the socket if it is open, else the answer's head. */
  async tunnel(authority: string, caller?: EgressCaller): Promise<{ head: string; socket: Socket }> {
    const socket = this.connect(caller);
    socket.write(`CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}\r\n\r\n`);
    const head = await new Promise<string>((resolve) => {
      socket.once('data', (chunk) => resolve(chunk.toString()));
      socket.once('close', () => resolve(''));
    });
    return { head, socket };
  }

  /** What the audit wrote. */
  get audit(): AuditLine[] {
    const parsed = this.lines.map((line) => JSON.parse(line) as { egress?: AuditLine });
    return parsed.flatMap(({ egress }) => (egress ? [egress] : []));
  }

  metrics(): Promise<string> {
    return this.management.registry.metrics();
  }

  async stop(): Promise<void> {
    await this.running?.close();
    delete this.running;
  }

  async remove(): Promise<void> {
    for (const close of this.closers) await close();
    await this.stop();
    await this.management.close();
    rmSync(this.folder, { recursive: true });
  }
}
