import { execFile } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { createServer as createHttpServer } from 'node:http';
import { createServer, type AddressInfo, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { probeFindings } from './probe-findings';
import { probeScript, type ProbeQuestions, type ProbeReport } from './probe-script';

const servers: Server[] = [];
let folder: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'margay-probe-'));
});
afterEach(() => servers.splice(0).forEach((server) => server.close()));
afterAll(() => rm(folder, { recursive: true, force: true }));

async function listening(server: Server): Promise<string> {
  servers.push(server.listen(0, '127.0.0.1'));
  await once(server, 'listening');
  return `127.0.0.1:${(server.address() as AddressInfo).port}`;
}

async function probe(questions: ProbeQuestions, environment: NodeJS.ProcessEnv = {}): Promise<ProbeReport> {
  const options = { cwd: folder, env: { PATH: process.env['PATH'], ...environment } };
  const { stdout } = await promisify(execFile)(process.execPath, ['-e', probeScript(questions)], options);
  return JSON.parse(stdout) as ProbeReport;
}

describe('the program that looks around in a sandbox', () => {
  it('tells what can be reached from what can not, and leaves nothing behind', async () => {
    const open = await listening(createServer());
    const report = await probe({ closed: { open, closed: '127.0.0.1:1' }, nameServers: [] });
    expect(report).toMatchObject({ reached: ['open'], answered: [], hasToken: false });
    expect(report.writeMs).toBeGreaterThan(0);
    expect(report).not.toHaveProperty('proxyStatus');
    expect(await readdir(folder)).toEqual([]);
  });

  it('asks the proxy for a host that no rule allows, under the name of the sandbox', async () => {
    const asked: unknown[] = [];
    const proxy = createHttpServer().on('connect', ({ url, headers }, socket) => {
      asked.push([url, headers['proxy-authorization']]);
      socket.end('HTTP/1.1 403 Forbidden\r\n\r\n');
    });
    const address = await listening(proxy);
    const nothing = { closed: {}, nameServers: [] };
    expect((await probe(nothing, { HTTPS_PROXY: `http://box:to%2Fken@${address}` })).proxyStatus).toBe(403);
    const authorization = `Basic ${Buffer.from('box:to/ken').toString('base64')}`;
    expect(asked).toEqual([['margay-doctor.invalid:443', authorization]]);
    expect((await probe(nothing, { HTTPS_PROXY: 'http://box:token@127.0.0.1:1' })).proxyStatus).toBe(0);
  });

  it('sends name servers a question that they understand', async () => {
    const server = createSocket('udp4').bind(0, '127.0.0.1');
    await once(server, 'listening');
    let question = Buffer.alloc(0);
    server.on('message', (message, { port, address }) => {
      question = message;
      server.send(message, port, address);
    });
    const { port } = server.address();
    // Only port 53 is asked; the same question at another one shows its form.
    const script = probeScript({ closed: {}, nameServers: ['127.0.0.1'] }).replace('query, 53,', `query, ${port},`);
    const { stdout } = await promisify(execFile)(process.execPath, ['-e', script], { cwd: folder });
    server.close();
    expect(question.subarray(12).toString('latin1')).toBe('\x07example\x03com\0\0\x01\0\x01');
    expect((JSON.parse(stdout) as ProbeReport).answered).toEqual(['127.0.0.1']);
  });
});

describe('what the report means', () => {
  const questions = { closed: { NATS: '127.0.0.1:4222' }, nameServers: ['127.0.0.1'] };
  const good: ProbeReport = {
    reached: [],
    answered: [],
    proxyStatus: 403,
    addresses: ['127.0.0.1'],
    hasToken: false,
    processLimit: '1024',
    hasUserNamespace: false,
    writeMs: 1,
  };
  const wrongIn = (report: Partial<ProbeReport>) =>
    probeFindings({ ...good, ...report }, questions)
      .filter(({ status }) => status !== 'ok')
      .map(({ check, status }) => `${check} ${status}`);

  it('is nothing wrong where a sandbox is closed', () => {
    expect(wrongIn({})).toEqual([]);
    expect(probeFindings(good, questions)).toHaveLength(7);
  });

  it.each<[string, Partial<ProbeReport>, string]>([
    ['something inside is open', { reached: ['NATS'] }, 'cluster.closed fault'],
    ['names are resolved', { answered: ['127.0.0.1'] }, 'cluster.names fault'],
    ['the proxy is silent', { proxyStatus: 0 }, 'cluster.egress fault'],
    ['the proxy sees another address', { proxyStatus: 407 }, 'cluster.egress fault'],
    ['there is a token', { hasToken: true }, 'cluster.token fault'],
    ['processes are not limited', { processLimit: 'max' }, 'cluster.processes warning'],
    ['the volume is slow', { writeMs: 400 }, 'cluster.volume warning'],
  ])('is a finding with a fix where %s', (_, report, expected) => {
    expect(wrongIn(report)).toEqual([expected]);
    expect(probeFindings({ ...good, ...report }, questions).every(({ status, fix }) => status === 'ok' || fix)).toBe(
      true,
    );
  });
});
