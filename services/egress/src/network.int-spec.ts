import { once } from 'node:events';
import { createServer } from 'node:http';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { setTimeout as delay } from 'node:timers/promises';
import { executorPb } from '@margay/contracts';
import { UnauthenticatedError } from '@margay/errors';
import { freePorts } from '@margay/launcher';
import { createLogger, generateKeys, GrpcServer, KeyRing, ManagementServer } from '@margay/platform';
import type { Registry } from 'prom-client';
import { EgressFixture } from './egress-fixture';
import { startEgress } from './start-egress';

/** tool-executor as far as the proxy knows it. */
const { resolveCaller } = executorPb.ExecutorDefinition.methods;
const Known = { ...executorPb.ExecutorDefinition, methods: { resolveCaller } } as const;

describe('the proxy on a network', () => {
  const fixture = new EgressFixture();
  const logger = createLogger({ level: 'off' });
  const asked: string[] = [];
  let closers: (() => Promise<unknown>)[] = [];
  let proxyPort: number;
  let webPort: number;
  let registry: Registry;

  beforeAll(async () => {
    webPort = await fixture.serve(createServer((_, response) => response.end('hello')));
    fixture.setPolicy({
      private: [{ host: 'web.example', cidr: '127.0.0.0/8', ports: [webPort] }],
      policy: { rules: [{ id: 'web', hosts: ['web.example'], ports: [webPort] }] },
    });
    const keysFolder = `${fixture.folder}/keys`;
    await generateKeys(keysFolder, ['egress', 'tool-executor']);
    const keys = await KeyRing.load(keysFolder, 'tool-executor');
    const executor = new GrpcServer({ listen: '127.0.0.1:0', keys, logger });
    executor.add(Known, {
      resolveCaller: async ({ sandboxId, token, sourceAddress }, context) => {
        asked.push(`${context.principal().principal} ${sandboxId} ${sourceAddress}`);
        if (token !== 'right') throw new UnauthenticatedError('egress_identity', 'Nobody.');
        return { tenantId: 't1', sessionId: 's1', sandboxClass: 'default' };
      },
    });
    const { port } = await executor.start();
    const management = new ManagementServer({ listen: '127.0.0.1:0', logger });
    registry = management.registry;
    [proxyPort = 0] = await freePorts(1);
    const environment = {
      MARGAY_EGRESS_POLICY_FILE: fixture.policyFile,
      MARGAY_EGRESS_LISTEN: `127.0.0.1:${proxyPort}`,
      MARGAY_TOOL_EXECUTOR_URL: `127.0.0.1:${port}`,
      MARGAY_KEYS_DIR: keysFolder,
      MARGAY_EGRESS_DRAIN_SECONDS: '0',
    };
    const running = await startEgress(
      environment,
      { logger, management },
      {
        resolve: async () => ['127.0.0.1'],
      },
    );
    closers = [() => running.close(), () => executor.close(50), () => management.close()];
  });
  afterAll(async () => {
    for (const close of closers) await close();
    await fixture.remove();
  });

  async function ask(user?: string): Promise<string> {
    const socket = connect(proxyPort, '127.0.0.1');
    const encoded = user === undefined ? '' : `Proxy-Authorization: Basic ${Buffer.from(user).toString('base64')}\r\n`;
    socket.write(`GET http://web.example:${webPort}/ HTTP/1.1\r\nHost: x\r\n${encoded}Connection: close\r\n\r\n`);
    return text(socket);
  }

  it('serves a sandbox that tool-executor knows by name, token and address', async () => {
    expect(await ask('b1:right')).toMatch(/^HTTP\/1.1 200 OK\r\n.*hello/s);
    expect(asked).toEqual(['system:egress b1 127.0.0.1']);
  });

  it('asks everybody else who they are', async () => {
    for (const user of [undefined, 'b2:wrong']) {
      const answer = await ask(user);
      expect(answer).toMatch(/^HTTP\/1.1 407 /);
      expect(answer).toContain('Proxy-Authenticate: Basic realm="margay"');
      expect(answer).toContain('X-Margay-Egress: egress_identity');
    }
  });

  it('stops asking for an address that guesses, and says so', async () => {
    await ask('b1:right');
    const before = asked.length;
    let refused: string | undefined;
    for (let round = 0; refused === undefined; round += 1) {
      const guesses = Array.from({ length: 40 }, (_, guess) => ask(`b1:guess${round}-${guess}`));
      refused = (await Promise.all(guesses)).find((answer) => answer.startsWith('HTTP/1.1 429'));
    }
    expect(refused).toContain('X-Margay-Egress: egress_limit');
    expect(asked.length).toBeGreaterThan(before);
    expect(await ask('b1:right')).toMatch(/^HTTP\/1.1 200 /);
    expect(await registry.metrics()).toMatch(/^margay_egress_identity_total\{outcome="limited"\} [1-9]/m);
  });

  it('leaves room for others, however many connections come from one address', async () => {
    const sockets = Array.from({ length: 520 }, () =>
      connect(proxyPort, '127.0.0.1')
        .on('error', () => undefined)
        .resume(),
    );
    const ends = sockets.map((socket) => once(socket, 'close'));
    const open = () => sockets.filter(({ destroyed }) => !destroyed);
    while (open().length > 500) await delay(50);
    await delay(100);
    expect(open()).toHaveLength(500);
    for (const socket of open()) socket.destroy();
    await Promise.all(ends);
    let answer = '';
    while (!answer.startsWith('HTTP/1.1 200')) answer = await ask('b1:right').catch(() => '');
  });

  it('does not start half configured', async () => {
    const management = new ManagementServer({ listen: '127.0.0.1:0', logger });
    const start = (more: object) =>
      startEgress({ MARGAY_EGRESS_POLICY_FILE: fixture.policyFile, ...more }, { logger, management });
    await expect(start({})).rejects.toThrow(/MARGAY_EGRESS_LOCAL_SOCKET/);
    await expect(start({ MARGAY_EGRESS_LISTEN: '127.0.0.1:0' })).rejects.toThrow(/MARGAY_TOOL_EXECUTOR_URL/);
    await management.close();
  });
});
