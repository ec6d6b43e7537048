import type { StoredEvent } from '@margay/contracts';
import { InvalidArgumentError } from '@margay/errors';
import type { CommitDocument, Head, RunRequest } from '@margay/log';
import { ENGINE_VERSION } from '../version';
import { submit } from './commands';
import type { DeltaEvent, EngineEvent, EngineOptions, RunOptions, RunResult } from './engine-options';
import type { SessionLog } from './journal-on';
import { RunDriver } from './run-driver';
import { RunStream } from './run-stream';

const COMMIT_ID_CHARS = 24;
const POOL = 'local';

/** One session: its log, and the run that this process drives. */
export class EngineSession {
  private driver: RunDriver | undefined;
  private readonly streams = new Set<RunStream<RunResult>>();

  constructor(
    readonly id: string,
    private readonly options: EngineOptions,
    private readonly log: SessionLog,
    private readonly onDelta: (delta: DeltaEvent) => void,
  ) {}

  /**
   * Runs to completion. A failing model or tool is a result.
   * @throws FailedPreconditionError `session_running` while a run is active; AbortedError `run_fenced` when another
   *   process took the run over
   */
  async run(text: string, options: RunOptions = {}): Promise<RunResult> {
    const { driver } = await this.accept(text, options);
    return driver.result;
  }

  /** The same with its events; leaving the loop does not stop the run. */
  stream(text: string, options: RunOptions = {}): RunStream<RunResult> {
    const stream = new RunStream(this.run(text, options));
    this.streams.add(stream);
    const forget = (): boolean => this.streams.delete(stream);
    stream.result.then(forget, forget);
    return stream;
  }

  /** A message to the running agent; starts a run, which `resume` then waits for, if none is active. */
  async steer(text: string): Promise<{ steered: boolean }> {
    const { answer, head } = await this.submit({
      kind: 'message',
      commitId: this.commitId(),
      run: this.request(text, {}),
    });
    if (answer['steered'] === false) void this.drive(head).result.catch(() => undefined); // resume() tells
    return { steered: answer['steered'] === true };
  }

  /** Stops the step under way; the run goes on. False if none is active. */
  interrupt(): Promise<boolean> {
    return this.submitToActive({ kind: 'interrupt', commitId: this.commitId() });
  }

  /** Ends the run. False if none is active. */
  async cancel(): Promise<boolean> {
    const isCanceled = await this.submitToActive({ kind: 'cancel', commitId: this.commitId() });
    if (isCanceled) this.driver?.cancel();
    return isCanceled;
  }

  /** Goes on with the log's unfinished run, wherever it stopped; undefined if there is none. */
  async resume(): Promise<RunResult | undefined> {
    const { head } = await this.log.loop.confirmedTip(this.id);
    if (!head.run) return undefined;
    if (this.driver?.isDriving(head.run.id)) return this.driver.result;
    return this.drive(head).result;
  }

  /** Stored events with numbers above `afterSeq`, in order. */
  async *events({ afterSeq = 0 } = {}): AsyncIterable<StoredEvent> {
    for await (const document of this.log.store.range(this.id, 1))
      for (const { seq, frame } of document.events) if (seq > afterSeq) yield JSON.parse(frame) as StoredEvent;
  }

  async head(): Promise<Head> {
    return (await this.log.loop.confirmedTip(this.id)).head;
  }

  /** For the engine: a commit of this process. */
  observe(document: CommitDocument): void {
    this.driver?.inbox?.observe(document);
  }

  /** For the engine: an event of this session. */
  deliver(event: EngineEvent): void {
    for (const stream of this.streams) stream.push(event);
  }

  get isWatched(): boolean {
    return this.streams.size > 0;
  }

  /** For the engine: leaves the run to whoever resumes it. */
  detach(): void {
    this.driver?.detach();
  }

  private async accept(text: string, options: RunOptions): Promise<{ driver: RunDriver }> {
    const commitId = options.commitId ?? this.commitId();
    const { head, answer } = await this.submit({ kind: 'accept', commitId, run: this.request(text, options) });
    const runId = String(answer['run_id']);
    if (this.driver?.isDriving(runId)) return { driver: this.driver };
    const driver = this.drive(head);
    const onAbort = (): void => void this.cancel();
    if (options.signal?.aborted) onAbort();
    options.signal?.addEventListener('abort', onAbort, { once: true });
    const release = (): void => options.signal?.removeEventListener('abort', onAbort);
    driver.result.then(release, release);
    return { driver };
  }

  private drive(head: Head): RunDriver {
    const driver = new RunDriver(head, this.options, this.log, this.onDelta);
    this.driver = driver;
    return driver;
  }

  private request(text: string, options: RunOptions): RunRequest {
    const model = options.model ?? (this.options.defaultModel || this.options.model.defaultModel);
    if (model === '')
      throw new InvalidArgumentError('model_required', 'name a model: in the run, the engine, or the model port');
    return {
      text,
      context: { model },
      binding: { project: null, cwd: null },
      attachments: [],
      principal: 'local',
      pool: POOL,
      options: {
        model,
        fallbackModels: options.fallbackModels ?? [],
        mode: options.mode ?? 'act',
        mcpTools: null,
        capabilities: [],
        stepBudget: options.stepBudget ?? 0,
        engineVersion: ENGINE_VERSION,
      },
    };
  }

  private submit(command: Parameters<typeof submit>[2]): ReturnType<typeof submit> {
    return submit(this.log.loop, this.id, command);
  }

  private async submitToActive(command: Parameters<typeof submit>[2]): Promise<boolean> {
    const outcome = await this.log.loop.submit(this.id, command);
    return outcome.ok;
  }

  private commitId(): string {
    return this.options.ids.hex(COMMIT_ID_CHARS);
  }
}
