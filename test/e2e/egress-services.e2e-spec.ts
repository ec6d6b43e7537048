import { execFileSync } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freePorts } from '@margay/launcher';
import { answer, byConversation, callTools } from '@margay/testing';
import { PlatformHarness } from './harness';
import { OtlpCollector, type CollectedSpan } from './otlp-collector';

const SERVICES = ['gateway', 'session', 'tool-executor', 'mcp-pool', 'ide-manager', 'channel', 'agent-runner', 'egress']; // prettier-ignore

jest.setTimeout(180_000);

describe('tools of an operator that go out by the egress proxy, with certificates', () => {
  let web: Server;
  let collector: OtlpCollector;
  let folder: string;
  let margay: PlatformHarness;
  const asked: string[] = [];

  beforeAll(async () => {
    web = createServer((request, response) => {
      asked.push(`${request.method} ${request.url}`);
      response.end('noted');
    });
    await new Promise<void>((resolve) => web.listen(0, '127.0.0.1', resolve));
    const { port } = web.address() as AddressInfo;
    const [door = 0] = await freePorts(1);
    collector = await OtlpCollector.start();
    folder = await mkdtemp(join(tmpdir(), 'margay-egress-services-'));
    const tool = (name: string, url: string) => ({ name, description: 'Notes it.', parameters: { type: 'object' }, url, effect: 'unkeyed' }); // prettier-ignore
    const tools = [tool('note', `http://localhost:${port}/note`), tool('wander', `http://127.0.0.1:${port}/wander`)];
    await writeFile(join(folder, 'tools.json'), JSON.stringify(tools));
    const peers = SERVICES.flatMap((service) => ['--peer', `${service}=${service}`]);
    const entry = join(__dirname, '../../dist/margay.cjs');
    execFileSync(process.execPath, [entry, 'bootstrap', '--out', folder, '--tls', 'tls', ...peers], { stdio: 'pipe' });
    const env = {
      MARGAY_HTTP_TOOLS_FILE: join(folder, 'tools.json'),
      MARGAY_EGRESS_SERVICES_LISTEN: `127.0.0.1:${door}`,
      MARGAY_EGRESS_SERVICES_ADDRESS: `127.0.0.1:${door}`,
      OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
      OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json',
      OTEL_BSP_SCHEDULE_DELAY: '100',
    };
    const adapt = (name: string) => Promise.resolve({ MARGAY_TLS_DIR: join(folder, `tls-${name}`) });
    // No sandbox gets anywhere.
    const egressPolicy = { maxMode: 'none', private: [{ host: 'localhost', cidr: '127.0.0.0/8', ports: [port] }] };
    margay = new PlatformHarness({ mode: 'split', env, adapt, egressPolicy });
    await margay.start();
  }, 600_000);
  afterAll(async () => {
    await margay?.stop();
    await collector?.close();
    await new Promise((resolve) => web.close(resolve));
    await rm(folder, { recursive: true });
  });

  async function call(name: string): Promise<string> {
    margay.script(
      byConversation(({ results, step }) =>
        step === 0 ? callTools({ name, arguments: {} }) : answer(results.at(-1)?.content ?? ''),
      ),
    );
    const session = await margay.sessionWith({});
    return (await (await session.query('go')).result()).text;
  }

  it('reach what the operator has excepted, and the trace shows it', async () => {
    expect(await call('note')).toContain('noted');
    expect(asked).toEqual(['POST /note']);
    const find = (name: string): CollectedSpan | undefined => collector.spans.find((span) => span.name === name);
    while (!find('egress.request') || !find('execute_tool note')) await new Promise((resolve) => setTimeout(resolve, 50)); // prettier-ignore
    const request = find('egress.request');
    expect(request).toMatchObject({ service: 'margay-tool-executor', attributes: { 'server.address': 'localhost', 'http.request.method': 'POST', 'http.response.status_code': 200 } }); // prettier-ignore
    expect(request?.traceId).toBe(find('execute_tool note')?.traceId);
  });

  it('are not sent where the proxy refuses, and the record says for whom', async () => {
    expect(await call('wander')).toContain('could not be reached (egress_denied)');
    expect(asked).toEqual(['POST /note']);
    const records = async () => {
      const log = await readFile(join(margay.home, 'logs', 'egress.log'), 'utf8');
      const lines = log.split('\n').filter((line) => line.includes('"egress":{'));
      return lines.map((line) => (JSON.parse(line) as { egress: { decision: string } }).egress);
    };
    while ((await records()).length === 0) await new Promise((resolve) => setTimeout(resolve, 50));
    expect(await records()).toEqual([
      expect.objectContaining({ decision: 'denied', service: 'tool-executor', tenantId: 'default' }),
    ]);
  });
});
