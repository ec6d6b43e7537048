import { contentPb, sandboxdPb } from '@margay/contracts';
import { grpcClient, type GrpcClient } from '@margay/platform';
import { CallStream } from '@margay/platform/calls';
import type { SandboxEndpoint } from '../driver/sandbox-driver';
import { knownCertificate, pinnedCertificate } from './pinned-certificate';

type SandboxdClient = GrpcClient<typeof sandboxdPb.SandboxdDefinition>;
type ContentClient = GrpcClient<typeof contentPb.ContentDefinition>;

const HELLO_TIMEOUT_MS = 10_000;

/** A way into one sandbox. */
export class SandboxConnection {
  /** All calls share one stream. */
  readonly calls: CallStream<sandboxdPb.ExecuteRequest, sandboxdPb.ExecuteResponse>;
  private contentClient?: ContentClient;

  private constructor(
    private readonly address: string,
    readonly client: SandboxdClient,
    readonly audience: string,
    /** Both are empty on a Unix socket. */
    readonly tlsFingerprint: string,
    readonly tlsCertificate: string,
  ) {
    this.calls = new CallStream(() => client.calls());
  }

  /** Nothing has been asked of it yet. */
  static async open({ address, audience, tls }: SandboxEndpoint): Promise<SandboxConnection> {
    if (!tls)
      return new SandboxConnection(address, grpcClient(sandboxdPb.SandboxdDefinition, address), audience, '', '');
    const { pem, fingerprint } = knownCertificate(tls) ?? (await pinnedCertificate(address, tls.fingerprint));
    const client = grpcClient(sandboxdPb.SandboxdDefinition, address, { pinnedCertificate: pem });
    return new SandboxConnection(address, client, audience, fingerprint, pem);
  }

  /** Binds the sandbox to the session of the grant. @returns what tells this life of it from others */
  async hello(grant: string, workspaceId = ''): Promise<string> {
    return (await this.client.hello({ workspaceId }, { grant, timeoutMs: HELLO_TIMEOUT_MS })).incarnation;
  }

  /** What the workspace begins with is brought over a connection of its own, once in its life. */
  get content(): ContentClient {
    const pinned = this.tlsCertificate === '' ? {} : { pinnedCertificate: this.tlsCertificate };
    this.contentClient ??= grpcClient(contentPb.ContentDefinition, this.address, pinned);
    return this.contentClient;
  }

  close(): void {
    this.contentClient?.close();
    this.calls.close();
    this.client.close();
  }
}
