import type { runnersPb } from '@margay/contracts';
import { createLogger } from '@margay/platform';
import { RunnerAttachment, type AttachmentPorts } from './runner-attachment';

const hello: runnersPb.AttachRequest = {
  message: { $case: 'hello', value: { instance: 'runner', pool: 'p', slots: 5, version: '1' } },
};

/** A replica whose store answers an `Attach` when it is told to. */
class Replica {
  readonly attached: string[] = [];
  readonly lost: number[] = [];
  storeAttached: (generation: number) => void = () => undefined;
  private readonly ports = {
    logger: createLogger({ level: 'off' }),
    dispatcher: {
      isStopped: false,
      attach: ({ instance }: { instance: string }) => this.attached.push(instance),
      detach: () => this.attached.pop() !== undefined,
    },
    runners: {
      attach: () => new Promise<number>((resolve) => (this.storeAttached = resolve)),
      markLost: (_: string, generation: number) => Promise.resolve(this.lost.push(generation) > 0),
    },
    watch: { takeOverAll: () => Promise.resolve() },
  } as unknown as AttachmentPorts;

  open(): RunnerAttachment {
    const stream = { send: () => undefined, end: () => undefined };
    const attachment = new RunnerAttachment(this.ports, stream, () => undefined);
    attachment.receive(hello);
    return attachment;
  }
}

beforeEach(() => jest.useFakeTimers());
afterEach(() => jest.useRealTimers());

it('offers a runner to the dispatcher once the store knows it, and marks it lost two seconds after its stream closed', async () => {
  const replica = new Replica();
  const attachment = replica.open();
  replica.storeAttached(7);
  await jest.advanceTimersByTimeAsync(0);
  expect(replica.attached).toEqual(['runner']);
  attachment.close();
  attachment.close();
  await jest.advanceTimersByTimeAsync(1_999);
  expect([replica.attached, replica.lost]).toEqual([[], []]);
  await jest.advanceTimersByTimeAsync(1);
  expect(replica.lost).toEqual([7]);
});

it('does not put a stream that closed meanwhile in the place of the next one, and marks it lost all the same', async () => {
  const replica = new Replica();
  replica.open().close();
  replica.storeAttached(7);
  await jest.advanceTimersByTimeAsync(0);
  expect(replica.attached).toEqual([]);
  await jest.advanceTimersByTimeAsync(2_000);
  expect(replica.lost).toEqual([7]);
});
