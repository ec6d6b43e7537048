import { generateKeyPairSync } from 'node:crypto';
import { promises as dns } from 'node:dns';
import { mkdtemp, rm } from 'node:fs/promises';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate as tick } from 'node:timers/promises';
import {
  executorPb,
  mcpPb,
  runnersPb,
  sessionsPb,
  workspacesPb,
  type Principal,
  type RunGrant,
} from '@margay/contracts';
import {
  CancelledError,
  FailedPreconditionError,
  isMargayError,
  ResourceExhaustedError,
  UnavailableError,
  type MargayError,
} from '@margay/errors';
import { Registry } from 'prom-client';
import { generateKeys } from '../auth/key-files';
import { KeyRing } from '../auth/key-ring';
import { createLogger } from '../logging/logger';
import { currentTraceparent, withSpan } from '../telemetry/spans';
import { startTelemetry } from '../telemetry/telemetry';
import { grpcClient } from './grpc-client';
import { GrpcServer, type GrpcServerOptions } from './grpc-server';
import type { CallContext, GrpcClient, GrpcHandlers } from './service-types';

type Sessions = sessionsPb.SessionsDefinition;
type Runners = runnersPb.RunnersDefinition;

const principal: Principal = {
  v: 1,
  iss: 'gateway',
  tenantId: 'acme',
  principal: 'user:ada',
  role: 'member',
  scopes: null,
};
const grant: RunGrant = {
  v: 1,
  tenantId: 'acme',
  sessionId: 's1',
  runId: 's1:r1',
  epoch: 3,
  storeGeneration: 0,
  principal: 'user:ada',
  workspace: { kind: 'own' },
};

let directory: string;
let gateway: KeyRing;
let session: KeyRing;
let closers: (() => Promise<void> | void)[] = [];
let lines: string[] = [];
let servers: GrpcServer[] = [];

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'margay-grpc-'));
  await generateKeys(directory, ['gateway', 'session', 'agent-runner']);
  gateway = await KeyRing.load(directory, 'gateway');
  session = await KeyRing.load(directory, 'session');
});
afterAll(() => rm(directory, { recursive: true }));
afterEach(async () => {
  for (const close of closers.reverse()) await close();
  closers = [];
  lines = [];
  servers = [];
});

const refuseAll = <T extends object>(known: Partial<T>): T =>
  new Proxy(known, {
    get: (target, key) => Reflect.get(target, key) ?? (() => Promise.reject(new Error('not faked'))),
  }) as T;

function newServer(options: Partial<GrpcServerOptions> = {}): GrpcServer {
  const logger = createLogger({ service: 'test', level: 'debug', write: (line) => lines.push(line) });
  const server = new GrpcServer({ listen: '127.0.0.1:0', keys: session, logger, ...options });
  closers.push(() => server.close(0));
  servers.push(server);
  return server;
}

async function sessions(handlers: Partial<GrpcHandlers<Sessions>>, keys = gateway): Promise<GrpcClient<Sessions>> {
  const { port } = await newServer().add(sessionsPb.SessionsDefinition, refuseAll(handlers)).start();
  const client = grpcClient(sessionsPb.SessionsDefinition, `127.0.0.1:${port}`, { keys });
  closers.push(() => client.close());
  return client;
}

async function runners(handlers: Partial<GrpcHandlers<Runners>>): Promise<GrpcClient<Runners>> {
  const { port } = await newServer().add(runnersPb.RunnersDefinition, refuseAll(handlers)).start();
  const client = grpcClient(runnersPb.RunnersDefinition, `127.0.0.1:${port}`, { keys: gateway });
  closers.push(() => client.close());
  return client;
}

async function failureOf(promise: Promise<unknown>) {
  const error = await promise.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  if (!isMargayError(error)) throw new Error(`expected a MargayError, got ${String(error)}`);
  return error;
}

const untilAborted = (signal: AbortSignal) =>
  new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));

describe('streams of a client', () => {
  it('fail for who reads them when the client breaks off, and never look whole', async () => {
    let taken = 0;
    let end: (how: unknown) => void = () => undefined;
    const ended = new Promise<unknown>((resolve) => (end = resolve));
    const upload = async (stream: AsyncIterable<unknown>): Promise<never> => {
      try {
        for await (const _ of stream) taken += 1;
        end('whole');
      } catch (error) {
        end(error);
      }
      throw new Error('nobody hears it');
    };
    const handlers = refuseAll<GrpcHandlers<workspacesPb.WorkspacesDefinition>>({ upload });
    const { port } = await newServer().add(workspacesPb.WorkspacesDefinition, handlers).start();
    const client = grpcClient(workspacesPb.WorkspacesDefinition, `127.0.0.1:${port}`, { keys: gateway });
    closers.push(() => client.close());
    async function* broken() {
      yield { workspaceId: 'a', filename: '', replace: false, content: Buffer.from('half') };
      while (taken === 0) await tick();
      throw new Error('the sender is gone');
    }
    await expect(client.upload(broken(), { principal })).rejects.toThrow('the sender is gone');
    expect(await ended).toMatchObject({ code: 'CANCELLED' });
  });
});

describe('unary calls', () => {
  it('carry the verified principal and the request id', async () => {
    let seen: CallContext | undefined;
    const client = await sessions({
      getState: async (request, context) => {
        seen = context;
        return sessionsPb.GetStateResponse.fromPartial({ state: { json: request.sessionId } });
      },
    });
    const request = sessionsPb.GetStateRequest.fromPartial({ sessionId: 's1' });
    const response = await client.getState(request, { principal, requestId: 'req-1' });
    expect(response).toMatchObject({ state: { json: 's1' } });
    expect(seen?.principal()).toEqual({ ...principal, requestId: 'req-1' });
    expect(seen?.hasGrant()).toBe(false);
    expect(() => seen?.grant()).toThrow(expect.objectContaining({ reason: 'grant_missing' }));
  });

  it('rebuild the error the server threw, with reason, details and retry time', async () => {
    const client = await sessions({
      getState: () =>
        Promise.reject(
          new ResourceExhaustedError('rate_limited', 'Zu viele Aufrufe – s1 später erneut.', {
            details: { limit: 5, scope: 'tenant' },
            retryAfterMs: 1500,
          }),
        ),
    });
    const error = await failureOf(client.getState(sessionsPb.GetStateRequest.fromPartial({}), { principal }));
    expect(error).toBeInstanceOf(ResourceExhaustedError);
    expect(error).toMatchObject({ reason: 'rate_limited', details: { limit: 5, scope: 'tenant' }, retryAfterMs: 1500 });
    expect(error.message).toBe('Zu viele Aufrufe – s1 später erneut.');
  });

  it('hide the text of unknown errors behind the request id, and log it', async () => {
    const client = await sessions({ getState: () => Promise.reject(new Error('password=hunter2 in db')) });
    const request = sessionsPb.GetStateRequest.fromPartial({});
    const error = await failureOf(client.getState(request, { principal, requestId: 'req-9' }));
    expect(error).toMatchObject({ code: 'INTERNAL', reason: 'internal' });
    expect(error.message).toContain('req-9');
    expect(JSON.stringify([error.message, error.details])).not.toContain('hunter2');
    expect(lines.join('')).toContain('"requestId":"req-9"');
  });

  it('refuse calls that carry neither principal nor grant', async () => {
    const client = await sessions({ getState: () => Promise.reject(new Error('reached')) });
    const error = await failureOf(client.getState(sessionsPb.GetStateRequest.fromPartial({})));
    expect(error).toMatchObject({ code: 'UNAUTHENTICATED', reason: 'credentials_missing' });
  });

  it('are turned away, before anything is believed, while the process serves nobody', async () => {
    let refusal: MargayError | undefined = new UnavailableError('clock_skew', 'The clock is off.');
    const { port } = await newServer({ refusal: () => refusal })
      .add(
        sessionsPb.SessionsDefinition,
        refuseAll<GrpcHandlers<Sessions>>({ getState: () => Promise.resolve({ state: undefined }) }),
      )
      .start();
    const client = grpcClient(sessionsPb.SessionsDefinition, `127.0.0.1:${port}`, { keys: gateway });
    closers.push(() => client.close());
    const ask = () => client.getState(sessionsPb.GetStateRequest.fromPartial({}), { principal });
    expect(await failureOf(ask())).toMatchObject({ code: 'UNAVAILABLE', reason: 'clock_skew' });
    refusal = undefined;
    await expect(ask()).resolves.toBeDefined();
  });

  it('refuse a principal signed by a key that is not trusted', async () => {
    const { privateKey } = generateKeyPairSync('ed25519');
    const forger = new KeyRing({ service: 'gateway', trust: {}, privateKey });
    const client = await sessions({ getState: () => Promise.reject(new Error('reached')) }, forger);
    const error = await failureOf(client.getState(sessionsPb.GetStateRequest.fromPartial({}), { principal }));
    expect(error).toMatchObject({ code: 'UNAUTHENTICATED', reason: 'principal_invalid' });
  });

  it('end also when they are cancelled while their principal is signed', async () => {
    const client = await sessions({ getState: () => Promise.resolve({ state: undefined }) });
    const aborter = new AbortController();
    const asked = client.getState({ sessionId: 's' }, { principal, signal: aborter.signal });
    aborter.abort();
    await expect(asked).rejects.toMatchObject({ code: 'CANCELLED' });
    const attached = await runners({});
    const stream = attached.attach({ principal });
    const ended = new Promise((resolve) => stream.on('error', resolve));
    stream.cancel();
    expect(await ended).toMatchObject({ code: 'CANCELLED' });
  });

  it('abort the handler when the deadline passes', async () => {
    let isEntered = false;
    const aborted = Promise.withResolvers<void>();
    const client = await sessions({
      getState: async (_, { signal }) => {
        isEntered = true;
        await untilAborted(signal);
        aborted.resolve();
        throw signal.reason;
      },
    });
    const request = sessionsPb.GetStateRequest.fromPartial({});
    // On a busy machine a short deadline may pass before the handler is there.
    for (let timeoutMs = 50; !isEntered; timeoutMs *= 2) {
      const error = await failureOf(client.getState(request, { principal, timeoutMs }));
      expect(error).toMatchObject({ code: 'DEADLINE_EXCEEDED', reason: 'deadline_exceeded', retryable: true });
    }
    await aborted.promise;
  });

  it('abort the handler when the caller does', async () => {
    const entered = Promise.withResolvers<void>();
    const aborted = Promise.withResolvers<void>();
    const client = await sessions({
      getState: async (_, { signal }) => {
        entered.resolve();
        await untilAborted(signal);
        aborted.resolve();
        throw signal.reason;
      },
    });
    const aborter = new AbortController();
    const call = failureOf(
      client.getState(sessionsPb.GetStateRequest.fromPartial({}), { principal, signal: aborter.signal }),
    );
    await entered.promise;
    aborter.abort();
    expect(await call).toBeInstanceOf(CancelledError);
    await aborted.promise;
  });

  it('say that an address cannot be reached', async () => {
    const client = grpcClient(mcpPb.McpDefinition, '127.0.0.1:1', { keys: gateway });
    closers.push(() => client.close());
    const error = await failureOf(client.listTools({}, { principal, timeoutMs: 60_000 }));
    expect(error).toMatchObject({ code: 'UNAVAILABLE', reason: 'unavailable' });
    expect(error.message).toContain('Mcp.ListTools');
  });

  it('reach replicas that took the place of all others within seconds', async () => {
    const host = 'replicas.example';
    const serve = (address: string, name: string) =>
      newServer({ listen: `${address}:${port}` })
        .add(
          sessionsPb.SessionsDefinition,
          refuseAll<GrpcHandlers<Sessions>>({
            getState: async () => sessionsPb.GetStateResponse.fromPartial({ state: { json: name } }),
          }),
        ) // prettier-ignore
        .start();
    const lookup = jest.spyOn(dns, 'lookup');
    closers.push(() => lookup.mockRestore());
    const resolveTo = (address: string) => lookup.mockResolvedValue([{ address, family: 4 }] as never);
    let port = 0;
    ({ port } = await serve('127.0.0.1', 'first'));
    resolveTo('127.0.0.1');
    const client = grpcClient(sessionsPb.SessionsDefinition, `${host}:${port}`, { keys: gateway });
    closers.push(() => client.close());
    const ask = () => client.getState(sessionsPb.GetStateRequest.fromPartial({ sessionId: 's1' }), { principal });
    expect(await ask()).toMatchObject({ state: { json: 'first' } });
    for (const [index, address] of ['127.0.0.2', '127.0.0.3'].entries()) {
      await serve(address, address);
      resolveTo(address);
      await servers[index]?.close(0);
      const answered = async () => (await client.waitForReady(100), ask());
      let answer = await answered().catch(() => undefined);
      while (!answer) answer = await answered().catch(() => undefined);
      expect(answer).toMatchObject({ state: { json: address } });
    }
  });

  it('do not reach the wire with a principal this service may not assert', async () => {
    const client = await sessions({}, await KeyRing.load(directory, 'agent-runner'));
    const error = await failureOf(client.getState(sessionsPb.GetStateRequest.fromPartial({}), { principal }));
    expect(error).toMatchObject({ code: 'PERMISSION_DENIED', reason: 'issuer_not_entitled' });
  });

  it('are measured by method and code', async () => {
    const registry = new Registry();
    const { port } = await newServer({ registry })
      .add(mcpPb.McpDefinition, { listTools: async () => ({ toolsJson: [] }) })
      .start();
    const client = grpcClient(mcpPb.McpDefinition, `127.0.0.1:${port}`, { keys: gateway });
    closers.push(() => client.close());
    await client.listTools({}, { principal });
    await failureOf(client.listTools({}));
    const text = await registry.metrics();
    expect(text).toContain(
      'margay_grpc_server_duration_seconds_count{service="margay.mcp.v1.Mcp",method="ListTools",code="OK"} 1',
    );
    expect(text).toContain('code="UNAUTHENTICATED"} 1');
  });

  it('refuse a message above the size limit with words', async () => {
    const client = await sessions({ getState: () => Promise.reject(new Error('reached')) });
    const request = sessionsPb.GetStateRequest.fromPartial({ sessionId: 'x'.repeat(9_000_000) });
    expect(await failureOf(client.getState(request, { principal }))).toMatchObject({ reason: 'too_large' });
  });

  it('continue the trace of the caller', async () => {
    const telemetry = await startTelemetry({
      service: 'test',
      exporter: { export: (_, done) => done({ code: 0 }), shutdown: async () => undefined },
    });
    closers.push(() => telemetry.close());
    let inside: string | undefined;
    const client = await sessions({
      getState: async () => {
        inside = currentTraceparent();
        return sessionsPb.GetStateResponse.fromPartial({});
      },
    });
    const outside = await withSpan('outer', {}, async () => {
      await client.getState(sessionsPb.GetStateRequest.fromPartial({}), { principal });
      return currentTraceparent();
    });
    const traceId = (traceparent: string | undefined) => traceparent?.split('-')[1];
    expect(traceId(outside)).toMatch(/^[0-9a-f]{32}$/);
    expect(traceId(inside)).toBe(traceId(outside));
    expect(inside).not.toBe(outside);
  });

  it('work over a Unix socket', async () => {
    const listen = `unix:${join(directory, 'mcp.sock')}`;
    await newServer({ listen })
      .add(mcpPb.McpDefinition, { listTools: async () => ({ toolsJson: ['{}'] }) })
      .start();
    const client = grpcClient(mcpPb.McpDefinition, listen, { keys: gateway });
    closers.push(() => client.close());
    expect(await client.listTools({}, { principal })).toEqual({ toolsJson: ['{}'] });
  });
});

describe('run grants', () => {
  it('reach the handler verified, without a principal', async () => {
    let seen: RunGrant | undefined;
    const { port } = await newServer()
      .add(
        executorPb.ExecutorDefinition,
        refuseAll<GrpcHandlers<executorPb.ExecutorDefinition>>({
          listTools: async (_, context) => {
            seen = context.grant();
            return executorPb.ListToolsResponse.fromPartial({});
          },
        }),
      )
      .start();
    const client = grpcClient(executorPb.ExecutorDefinition, `127.0.0.1:${port}`);
    closers.push(() => client.close());
    await client.listTools(executorPb.ListToolsRequest.fromPartial({}), { grant: await session.signRunGrant(grant) });
    expect(seen).toEqual(grant);
  });
});

describe('server streams', () => {
  const page = (index: number, bytes = 0) =>
    sessionsPb.ReadBlobResponse.fromPartial({ chunk: Buffer.alloc(bytes, index) });
  const request = sessionsPb.ReadBlobRequest.fromPartial({});

  it('deliver what came before an error, then the error', async () => {
    const client = await sessions({
      async *readBlob() {
        yield page(1, 1);
        yield page(2, 1);
        throw new FailedPreconditionError('fenced', 'Run s1:r1 has moved on.');
      },
    });
    const received: unknown[] = [];
    const reading = async () => {
      for await (const message of client.readBlob(request, { principal })) received.push(message);
    };
    expect(await failureOf(reading())).toMatchObject({ reason: 'fenced', code: 'FAILED_PRECONDITION' });
    expect(received).toHaveLength(2);
  });

  it('hold the producer back while the reader is slow', async () => {
    let produced = 0;
    const messages = 120;
    const client = await sessions({
      async *readBlob() {
        for (; produced < messages; produced += 1) yield page(produced % 256, 128 * 1024);
      },
    });
    const iterator = client.readBlob(request, { principal })[Symbol.asyncIterator]();
    await iterator.next();
    // The producer has stopped once many turns of the event loop bring nothing new.
    for (let before = -1, quiet = 0; quiet < 200; before = produced) {
      await tick();
      quiet = before === produced ? quiet + 1 : 0;
    }
    const heldAt = produced;
    let received = 1;
    while (!(await iterator.next()).done) received += 1;
    expect(heldAt).toBeLessThan(messages / 2);
    expect(received).toBe(messages);
  });

  it('abort the producer when the reader leaves, even if it waits for something else', async () => {
    const aborted = Promise.withResolvers<void>();
    const client = await sessions({
      async *readBlob(_, { signal }) {
        signal.addEventListener('abort', () => aborted.resolve(), { once: true });
        yield page(1, 1);
        await new Promise(() => undefined);
      },
    });
    for await (const message of client.readBlob(request, { principal })) {
      expect(message).toBeDefined();
      break;
    }
    await aborted.promise;
  });

  it('end with CANCELLED when the signal aborts', async () => {
    const client = await sessions({
      async *readBlob(_, { signal }) {
        yield page(1, 1);
        await untilAborted(signal);
      },
    });
    const aborter = new AbortController();
    const reading = async () => {
      for await (const message of client.readBlob(request, { principal, signal: aborter.signal })) {
        expect(message).toBeDefined();
        aborter.abort();
      }
    };
    expect(await failureOf(reading())).toMatchObject({ code: 'CANCELLED', reason: 'cancelled' });
  });
});

describe('duplex streams', () => {
  it('carry messages both ways and end in order', async () => {
    const client = await runners({
      attach: (stream, context) => {
        expect(context.principal().principal).toBe('user:ada');
        stream.on('data', () => stream.write(runnersPb.AttachResponse.fromPartial({})));
        stream.on('end', () => stream.end());
      },
    });
    const stream = client.attach({ principal });
    let received = 0;
    stream.on('data', () => (received += 1));
    const ended = new Promise((resolve) => stream.on('end', resolve));
    stream.write(runnersPb.AttachRequest.fromPartial({}));
    stream.write(runnersPb.AttachRequest.fromPartial({}));
    stream.end();
    await ended;
    expect(received).toBe(2);
  });

  it.each(['throws', 'fails later'])('show the error of a handler that %s', async (how) => {
    const error = new FailedPreconditionError('fenced', 'Run s1:r1 has moved on.');
    const client = await runners({
      journal: (stream, context) => {
        if (how === 'throws') throw error;
        stream.on('data', () => context.fail(error));
      },
    });
    const stream = client.journal({ principal });
    const failure = new Promise((resolve) => stream.on('error', resolve));
    stream.write(runnersPb.JournalRequest.fromPartial({}));
    stream.resume();
    expect(await failure).toMatchObject({ code: 'FAILED_PRECONDITION', reason: 'fenced' });
  });

  it('abort the handler when the client disappears', async () => {
    const attached = Promise.withResolvers<void>();
    const aborted = Promise.withResolvers<void>();
    const client = await runners({
      attach: (stream, context) => {
        stream.resume();
        attached.resolve();
        context.signal.addEventListener('abort', () => aborted.resolve(), { once: true });
      },
    });
    const stream = client.attach({ principal });
    stream.on('error', () => undefined);
    await attached.promise;
    stream.cancel();
    await aborted.promise;
  });

  it('are cut by a closing server after its grace time', async () => {
    const attached = Promise.withResolvers<void>();
    const server = newServer().add(
      runnersPb.RunnersDefinition,
      refuseAll<GrpcHandlers<Runners>>({ attach: (stream) => void (stream.resume(), attached.resolve()) }),
    );
    const { port } = await server.start();
    const client = grpcClient(runnersPb.RunnersDefinition, `127.0.0.1:${port}`, { keys: gateway });
    closers.push(() => client.close());
    const stream = client.attach({ principal });
    const failure = new Promise((resolve) => stream.on('error', resolve));
    stream.resume();
    await attached.promise;
    await server.close(20);
    expect(await failure).toMatchObject({ code: 'UNAVAILABLE', retryable: true });
  });

  it('end with CANCELLED when the caller cancels', async () => {
    const client = await runners({ attach: (stream) => void stream.resume() });
    const stream = client.attach({ principal });
    const failure = new Promise((resolve) => stream.on('error', resolve));
    stream.resume();
    stream.cancel();
    expect(await failure).toMatchObject({ code: 'CANCELLED' });
  });

  it('end with UNAVAILABLE when the connection breaks', async () => {
    const { port } = await newServer()
      .add(runnersPb.RunnersDefinition, refuseAll<GrpcHandlers<Runners>>({ attach: (stream) => void stream.resume() }))
      .start();
    const sockets = new Set<Socket>();
    const proxy = createServer((inbound) => {
      const outbound = connect(port, '127.0.0.1');
      for (const socket of [inbound, outbound]) sockets.add(socket.on('error', () => socket.destroy()));
      inbound.pipe(outbound).pipe(inbound);
    });
    await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve));
    closers.push(() => new Promise<void>((resolve) => proxy.close(() => resolve())));
    const client = grpcClient(runnersPb.RunnersDefinition, `127.0.0.1:${(proxy.address() as AddressInfo).port}`, {
      keys: gateway,
    });
    closers.push(() => client.close());
    const stream = client.attach({ principal });
    const failure = new Promise((resolve) => stream.on('error', resolve));
    stream.resume();
    await client.waitForReady(60_000);
    for (const socket of sockets) socket.resetAndDestroy();
    expect(await failure).toMatchObject({ code: 'UNAVAILABLE', retryable: true });
  });

  it('get a new connection after the age limit, and the cut is visible', async () => {
    const { port } = await newServer({ maxAgeMs: 100, maxAgeGraceMs: 50 })
      .add(runnersPb.RunnersDefinition, refuseAll<GrpcHandlers<Runners>>({ attach: (stream) => void stream.resume() }))
      .start();
    const client = grpcClient(runnersPb.RunnersDefinition, `127.0.0.1:${port}`, { keys: gateway });
    closers.push(() => client.close());
    const cut = () =>
      new Promise((resolve) => {
        const stream = client.attach({ principal });
        stream.on('error', resolve);
        stream.resume();
      });
    expect(await cut()).toMatchObject({ retryable: true });
    expect(await cut()).toMatchObject({ retryable: true });
  });
});
