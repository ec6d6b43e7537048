import { randomUUID } from 'node:crypto';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { executorPb, subjects } from '@margay/contracts';
import { UnauthenticatedError } from '@margay/errors';
import { freePorts, openNats, type OpenServer } from '@margay/launcher';
import { createLogger, generateKeys, GrpcServer, KeyRing, ManagementServer, NatsBus } from '@margay/platform';
import { EgressFixture } from './egress-fixture';
import { startEgress } from './start-egress';

/** tool-executor as far as the proxy knows it. */
const { resolveCaller } = executorPb.ExecutorDefinition.methods;
const Known = { ...executorPb.ExecutorDefinition, methods: { resolveCaller } } as const;

describe('the end of a sandbox', () => {
  const fixture = new EgressFixture();
  const logger = createLogger({ level: 'off' });
  /** The server may be one that others talk over, too. */
  const [one, other] = [randomUUID(), randomUUID()];
  const gone = new Set<string>();
  let asked: string[] = [];
  let closers: (() => Promise<unknown>)[] = [];
  let nats: OpenServer;
  let proxyPort: number;

  beforeAll(async () => {
    fixture.setPolicy({ policy: { mode: 'none' } });
    nats = await openNats({ directory: `${fixture.folder}/nats` });
    const keysFolder = `${fixture.folder}/keys`;
    await generateKeys(keysFolder, ['egress', 'tool-executor']);
    const keys = await KeyRing.load(keysFolder, 'tool-executor');
    const executor = new GrpcServer({ listen: '127.0.0.1:0', keys, logger });
    executor.add(Known, {
      resolveCaller: async ({ sandboxId }) => {
        asked.push(sandboxId);
        if (gone.has(sandboxId)) throw new UnauthenticatedError('egress_identity', 'Nobody.');
        return { tenantId: 't1', sessionId: 's1', sandboxClass: 'default' };
      },
    });
    const { port } = await executor.start();
    const management = new ManagementServer({ listen: '127.0.0.1:0', logger });
    [proxyPort = 0] = await freePorts(1);
    const environment = {
      MARGAY_EGRESS_POLICY_FILE: fixture.policyFile,
      MARGAY_EGRESS_LISTEN: `127.0.0.1:${proxyPort}`,
      MARGAY_TOOL_EXECUTOR_URL: `127.0.0.1:${port}`,
      MARGAY_KEYS_DIR: keysFolder,
      MARGAY_NATS_URL: nats.url,
      MARGAY_EGRESS_DRAIN_SECONDS: '0',
    };
    const running = await startEgress(environment, { logger, management });
    closers = [() => running.close(), () => executor.close(50), () => management.close()];
  }, 300_000);
  afterAll(async () => {
    for (const close of closers) await close();
    await nats.stop();
    await fixture.remove();
  });

  async function statusOf(sandboxId: string): Promise<string> {
    const socket = connect(proxyPort, '127.0.0.1');
    const user = Buffer.from(`${sandboxId}:token`).toString('base64');
    socket.write(`GET http://a.example/ HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Basic ${user}\r\nConnection: close\r\n\r\n`); // prettier-ignore
    return (await text(socket)).slice(9, 12);
  }

  it('ends at once what the proxy knew of it, and of no other', async () => {
    for (const sandboxId of [one, other, one, other]) expect(await statusOf(sandboxId)).toBe('403');
    expect(asked).toEqual([one, other]);
    gone.add(one).add(other);
    asked = [];
    const bus = new NatsBus({ url: nats.url, name: 'spec', logger });
    closers.unshift(() => bus.close());
    await bus.start();
    do bus.publish(subjects.config('sandbox'), one);
    while ((await statusOf(one)) !== '407');
    expect(await statusOf(other)).toBe('403');
    expect(new Set(asked)).toEqual(new Set([one]));
  });
});
