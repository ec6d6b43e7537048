import { execFileSync } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { executorPb, sessionsPb } from '@margay/contracts';
import { createLogger, grpcClient, KeyRing, systemPrincipal, TlsIdentity } from '@margay/platform';
import { answer, byConversation, callTools } from '@margay/testing';
import { PlatformHarness } from './harness';

const SERVICES = ['gateway', 'session', 'tool-executor', 'mcp-pool', 'ide-manager', 'channel', 'agent-runner'];
const logger = createLogger({ service: 'e2e', level: 'off' });

jest.setTimeout(180_000);

describe('services with certificates', () => {
  let folder: string;
  let margay: PlatformHarness;

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'margay-certificates-'));
    const peers = SERVICES.flatMap((service) => ['--peer', `${service}=${service}`]);
    const entry = join(__dirname, '../../dist/margay.cjs');
    execFileSync(process.execPath, [entry, 'bootstrap', '--out', folder, '--tls', 'tls', ...peers], { stdio: 'pipe' });
    const adapt = (name: string) => Promise.resolve({ MARGAY_TLS_DIR: join(folder, `tls-${name}`) });
    margay = new PlatformHarness({ mode: 'split', adapt });
    await margay.start();
  }, 600_000);
  afterAll(async () => {
    await margay?.stop();
    await rm(folder, { recursive: true });
  });

  const certificateOf = (service: string) => TlsIdentity.open(join(folder, `tls-${service}`), logger);
  const keysOf = async (service: string, certificate?: string) =>
    KeyRing.load(join(margay.home, 'keys'), service, {
      tls: certificate === undefined ? undefined : await certificateOf(certificate),
    });

  it('bring a run with tools to its end, over connections of every kind', async () => {
    margay.script(
      byConversation(({ results, step }) =>
        step === 0
          ? callTools({ name: 'aider_shell_tool', arguments: { command: 'echo over $((40 + 2)) hops' } })
          : answer(results.at(-1)?.content ?? ''),
      ),
    );
    const session = await margay.sessionWith({});
    expect((await (await session.query('go')).result()).text).toContain('over 42 hops');
  });

  it('tell when their certificates expire', async () => {
    for (const service of SERVICES) {
      const text = await (await fetch(`${margay.platform.managementUrl(service)}/metrics`)).text();
      const [, seconds] = /^margay_certificate_expiry_seconds (\S+)$/m.exec(text) ?? [];
      expect([service, Math.round(Number(seconds) / 86_400)]).toEqual([service, 365]);
    }
  });

  it('take no call in the clear, nor from a service that has no business there, whatever it has signed', async () => {
    const address = margay.platform.serviceAddress('session');
    const call = { principal: systemPrincipal('gateway', 'default'), timeoutMs: 60_000 };
    const ask = async (certificate?: string) => {
      const client = grpcClient(sessionsPb.SessionsDefinition, address, { keys: await keysOf('gateway', certificate) });
      return client.listModels({}, call).finally(() => client.close());
    };
    expect(await ask('gateway')).toMatchObject({ defaultModel: 'scripted' });
    await expect(ask()).rejects.toMatchObject({ code: 'UNAVAILABLE' });
    await expect(ask('session')).rejects.toMatchObject({ reason: 'caller_refused' });
  });

  it('take no principal of another service than the certificate is for, though its key has signed it', async () => {
    const ask = async (certificate: string) => {
      const keys = await keysOf('agent-runner', certificate);
      const client = grpcClient(sessionsPb.SessionsDefinition, margay.platform.serviceAddress('session'), { keys });
      const principal = systemPrincipal('agent-runner', 'default');
      return client.listModels({}, { principal, timeoutMs: 60_000 }).finally(() => client.close());
    };
    expect(await ask('agent-runner')).toMatchObject({ defaultModel: 'scripted' });
    await expect(ask('channel')).rejects.toMatchObject({ reason: 'issuer_not_caller' });
  });

  it('do not take one service for another', async () => {
    const keys = await keysOf('gateway', 'gateway');
    const client = grpcClient(executorPb.ExecutorDefinition, margay.platform.serviceAddress('session'), { keys });
    await expect(client.listTools({}, { timeoutMs: 60_000 })).rejects.toMatchObject({ code: 'UNAVAILABLE' });
    client.close();
  });
});
