import { EventEmitter } from 'node:events';
import type { executorPb } from '@margay/contracts';
import { UnavailableError } from '@margay/errors';
import type { GrpcClient } from '@margay/platform';
import { serveCalls, type StartedCall } from '@margay/platform/calls';

type Message = NonNullable<executorPb.ExecuteResponse['message']>;

/** What happens in one attempt: messages, errors and promises to wait for, in order. */
export type Attempt = (Message | Error | Promise<unknown>)[];

type Client = GrpcClient<typeof executorPb.ExecutorDefinition>;
type Calls = ReturnType<Client['calls']>;

/** One end of a stream within this process. */
class End extends EventEmitter {
  other!: End;

  write(message: unknown): boolean {
    setImmediate(() => this.other.emit('data', message));
    return true;
  }

  end(): void {
    setImmediate(() => this.other.emit('end'));
  }
}

/** A tool-executor played by a spec: each call takes the next attempt. */
export class FakeExecutor {
  readonly requests: executorPb.ExecuteRequest[] = [];
  readonly cancelled: string[] = [];
  /** Calls under way. */
  open = 0;
  attempts: Attempt[] = [];
  tools: string[] = [];

  readonly client = {
    calls: () => this.calls(),
    listTools: () => Promise.resolve({ toolsJson: this.tools, isolation: 'none', sandboxClasses: [] }),
    cancelCall: ({ callId }: executorPb.CancelCallRequest) => {
      this.cancelled.push(callId);
      return Promise.resolve({ state: 'cancelling' });
    },
  } as unknown as Client;

  private calls(): Calls {
    const [client, server] = [new End(), new End()];
    client.other = server;
    server.other = client;
    serveCalls<executorPb.ExecuteRequest, executorPb.ExecuteResponse>(server, (call) => this.call(call));
    return client as unknown as Calls;
  }

  private async *call({
    request,
    signal,
  }: StartedCall<executorPb.ExecuteRequest>): AsyncGenerator<executorPb.ExecuteResponse> {
    this.requests.push(request);
    this.open += 1;
    try {
      for (const item of this.attempts.shift() ?? [gone()]) {
        signal.throwIfAborted();
        if (item instanceof Error) throw item;
        if (item instanceof Promise) await Promise.race([item, aborted(signal)]);
        else yield { message: item };
      }
    } finally {
      this.open -= 1;
    }
  }
}

/** The connection is lost. */
export const gone = () => new UnavailableError('unavailable', 'Executor.Execute cannot be reached.');
export const started = (incarnation = 'one', reattached = false): Message => ({
  $case: 'started',
  value: { incarnation, reattached },
});
export const wrongIncarnation = (incarnation: string): Message => ({
  $case: 'wrongIncarnation',
  value: { incarnation },
});
export const finished = (result: unknown, status = 'ok', limitHit = ''): Message => ({
  $case: 'finished',
  value: {
    status,
    resultJson: JSON.stringify(result),
    changedFiles: [],
    limitHit,
    durationMs: 1,
    exitCode: undefined,
    fileVersion: undefined,
    unchanged: false,
  },
});

function aborted(signal: AbortSignal): Promise<never> {
  return new Promise((_resolve, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason as Error), { once: true });
  });
}
