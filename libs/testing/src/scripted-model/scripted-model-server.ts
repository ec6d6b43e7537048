import { once } from 'node:events';
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { answer, type Answer, type Script, type ScriptRequest } from './answer';
import { ApiError, invalid } from './api-error';
import type { ChatRequest } from './chat-request';
import { checkRequest } from './check-request';
import { play, sendError, sendJson } from './exchange';

/** One chat-completions request the server got, refused ones included. */
export interface RecordedRequest extends ScriptRequest {
  /** The body as sent; `messages` and `tools` are its checked form, empty if it was refused. */
  body: unknown;
  headers: IncomingHttpHeaders;
  /** Set if the request was refused: what the client was told. */
  refused?: string;
  /** The client gave up before the answer was whole. */
  aborted: boolean;
  /** Settles when the answer is whole, refused, cut, or given up. */
  done: Promise<void>;
}

export interface ScriptedModelOptions {
  /** Answers every model without a script of its own. Default: the text `done`. */
  script?: Script;
  /** Scripts by exact model name. */
  scripts?: Readonly<Record<string, Script>>;
  /** If given, other names get 404 `model_not_found`; `GET /v1/models` lists them. */
  models?: readonly string[];
  /** If given, requests need it as bearer token. */
  apiKey?: string;
  /** Default: loopback and a free port. */
  listen?: { host: string; port: number };
}

/**
 * An OpenAI-compatible chat-completions server for tests, on loopback and a free port. It refuses what the real API
 * refuses (see `checkRequest`), answers by script, and records what it got. Close it in `afterEach`.
 */
export class ScriptedModelServer {
  /** Every chat-completions request since the start or the last `clear()`, in order of arrival. */
  readonly requests: RecordedRequest[] = [];
  private readonly scripts = new Map<string, Script>();
  private readonly given = new Map<Script, number>();
  private readonly arrivals = new Set<() => void>();
  private readonly closing = new AbortController();
  private fallback: Script;
  private accepted = 0;

  private constructor(
    private readonly server: Server,
    private readonly options: ScriptedModelOptions,
  ) {
    this.fallback = options.script ?? (() => answer('done'));
    for (const [model, script] of Object.entries(options.scripts ?? {})) this.scripts.set(model, script);
    server.on('request', (request: IncomingMessage, response: ServerResponse) => void this.serve(request, response));
  }

  static async start(options: ScriptedModelOptions = {}): Promise<ScriptedModelServer> {
    const server = createServer({ keepAliveTimeout: 60_000, requestTimeout: 0 });
    const model = new ScriptedModelServer(server, options);
    server.listen(options.listen ?? { host: '127.0.0.1', port: 0 });
    await once(server, 'listening');
    return model;
  }

  /** For `OPENAI_BASE_URL`: `http://127.0.0.1:<port>/v1`. */
  get baseUrl(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}/v1`;
  }

  /** Replaces the script of one model, or of all models without their own. */
  use(script: Script, model?: string): void {
    this.given.delete(script);
    if (model === undefined) this.fallback = script;
    else this.scripts.set(model, script);
  }

  /** Forgets the recorded requests; scripts go on where they are. */
  clear(): void {
    this.requests.length = 0;
  }

  /** Resolves once so many requests have been recorded. */
  async waitForRequests(count: number): Promise<void> {
    while (this.requests.length < count) await new Promise<void>((resolve) => this.arrivals.add(resolve));
  }

  /** Ends every connection at once, answered or not. */
  async close(): Promise<void> {
    if (!this.server.listening) return;
    const closed = once(this.server, 'close');
    this.server.close();
    this.closing.abort();
    this.server.closeAllConnections();
    await closed;
  }

  private async serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    try {
      const path = new URL(request.url ?? '/', 'http://loopback').pathname;
      this.checkKey(request);
      if (request.method === 'GET' && path === '/v1/models') sendJson(response, 200, this.modelList());
      else if (request.method === 'POST' && path === '/v1/chat/completions') await this.complete(request, response);
      else throw new ApiError(404, `Invalid URL (${request.method ?? ''} ${path})`);
    } catch (error) {
      sendError(response, error instanceof ApiError ? error : scriptFailure(error));
    }
  }

  private async complete(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const text = (await buffer(request)).toString('utf8');
    const { record, signal, onCut } = this.record(request, response);
    try {
      record.body = parse(text);
      const checked = this.check(record.body);
      this.accepted += 1;
      Object.assign(record, {
        n: this.accepted,
        model: checked.model,
        messages: checked.messages,
        tools: checked.tools,
      });
      this.announce();
      await play(await this.answerTo(record), { ...checked, n: record.n, signal, onCut }, response);
    } catch (error) {
      record.refused = error instanceof Error ? error.message : String(error);
      throw error;
    } finally {
      this.announce();
    }
  }

  private check(body: unknown): ChatRequest {
    const checked = checkRequest(body);
    if (this.options.models?.includes(checked.model) === false)
      throw new ApiError(
        404,
        `The model \`${checked.model}\` does not exist or you do not have access to it.`,
        null,
        'model_not_found',
      );
    return checked;
  }

  private record(
    request: IncomingMessage,
    response: ServerResponse,
  ): { record: RecordedRequest; signal: AbortSignal; onCut: () => void } {
    let isOurs = false;
    const gone = new AbortController();
    const closed = new Promise<void>((resolve) => response.once('close', () => resolve()));
    const record: RecordedRequest = {
      n: 0,
      model: '',
      messages: [],
      tools: [],
      body: undefined,
      headers: request.headers,
      aborted: false,
      done: closed,
    };
    response.once('close', () => {
      record.aborted = !response.writableFinished && !isOurs && !this.closing.signal.aborted;
      gone.abort();
    });
    this.requests.push(record);
    const onCut = (): void => void (isOurs = true);
    return { record, signal: AbortSignal.any([gone.signal, this.closing.signal]), onCut };
  }

  private async answerTo(record: RecordedRequest): Promise<Answer> {
    const script = this.scripts.get(record.model) ?? this.fallback;
    const { n, model, messages, tools } = record;
    if (typeof script === 'function') return script({ n, model, messages, tools });
    const given = this.given.get(script) ?? 0;
    const next = script[given];
    if (next === undefined) throw new Error(`the script has ${script.length} answers and was asked for one more`);
    this.given.set(script, given + 1);
    return next;
  }

  private announce(): void {
    for (const resolve of this.arrivals) resolve();
    this.arrivals.clear();
  }

  private checkKey(request: IncomingMessage): void {
    const { apiKey } = this.options;
    if (apiKey !== undefined && request.headers.authorization !== `Bearer ${apiKey}`)
      throw new ApiError(401, 'Incorrect API key provided.', null, 'invalid_api_key');
  }

  private modelList(): object {
    const names = this.options.models ?? [...this.scripts.keys()];
    return {
      object: 'list',
      data: names.map((id) => ({ id, object: 'model', created: 1_700_000_000, owned_by: 'margay-testing' })),
    };
  }
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch (error) {
    throw invalid(
      `We could not parse the JSON body of your request. (${error instanceof Error ? error.message : 'malformed'})`,
    );
  }
}

/** A script's own mistake must fail the test at once: 400, which clients do not repeat. */
const scriptFailure = (error: unknown): ApiError =>
  new ApiError(400, `scripted model: ${error instanceof Error ? error.message : String(error)}`, null, 'script_failed');
