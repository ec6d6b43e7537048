import { readFile } from 'node:fs/promises';
import { ToolDescriptor } from '@margay/contracts';
import { sendBy, type HttpAnswer, type OpenTunnel } from './http-send';
import type { HeaderValue, HttpToolSettings } from './http-tool-file';
import { Secrets } from './secrets';
import type { Attempt, AttemptEnd, OutsideTool } from './outside-tool';

/** Waited for by the engine beyond the tool's own time, so that the tool's word comes first. */
const MARGIN_SECONDS = 5;
/** Small enough for one document of the guard. */
const ANSWER_MAX_BYTES = 256 * 1024;
/** With these a server, or one in front of it, asks for another try. */
const PASSING = new Set([502, 503, 504]);
/** Who is in front of a server says so when the server did not answer: it may have done what was asked. */
const IN_DOUBT = new Set([502, 504]);

/** A tool that an operator has defined: its arguments are sent as JSON, the answer is its result. */
export class HttpTool implements OutsideTool {
  readonly descriptor: ToolDescriptor;
  readonly timeoutMs: number;

  /** @param tunnelFor how a tenant's calls go out; absent: from here */
  constructor(
    private readonly settings: HttpToolSettings,
    private readonly tunnelFor?: (tenantId: string) => OpenTunnel,
  ) {
    this.descriptor = descriptorOf(settings);
    this.timeoutMs = settings.timeout_seconds * 1_000;
  }

  async attempt({ callId, tenantId, argsJson, signal }: Attempt): Promise<AttemptEnd> {
    const { url, method } = this.settings;
    const secrets = new Secrets();
    const headers = await this.headers(secrets).catch(() => undefined);
    if (!headers) return { kind: 'not_sent', error: 'a secret that the tool needs cannot be read; tell the operator' };
    const request = {
      url,
      method,
      headers: { ...headers, 'content-type': 'application/json', 'idempotency-key': callId },
      body: argsJson === '' ? '{}' : argsJson,
      maxBytes: ANSWER_MAX_BYTES,
      signal,
    };
    const answer = await sendBy(this.tunnelFor?.(tenantId), request);
    return 'kind' in answer ? answer : resultOf(answer, secrets);
  }

  /** Read for each call: a secret that was exchanged counts at once. */
  private async headers(secrets: Secrets): Promise<Record<string, string>> {
    const entries = Object.entries(this.settings.headers).map(
      async ([name, value]) => [name.toLowerCase(), await valueOf(value, secrets)] as const,
    );
    return Object.fromEntries(await Promise.all(entries));
  }
}

async function valueOf(value: HeaderValue, secrets: Secrets): Promise<string> {
  if (typeof value === 'string') return value;
  const secret = (await readFile(value.file, 'utf8')).replace(/\r?\n$/, '');
  if (secret === '') throw new Error('the file of a secret is empty');
  secrets.add(secret);
  return `${value.prefix}${secret}`;
}

function resultOf({ status, contentType, bytes, isCut }: HttpAnswer, secrets: Secrets): AttemptEnd {
  const said = secrets.hide(bytes.toString('utf8'), isCut);
  const text = isCut ? `${said}\n[the answer was cut after ${ANSWER_MAX_BYTES} bytes]` : said;
  if (status >= 200 && status < 300) {
    return { kind: 'answered', status: 'ok', result: isCut ? text : secrets.hideIn(parsed(text, contentType)) };
  }
  const hint = status >= 300 && status < 400 ? ' (redirects are not followed)' : '';
  const detail = text.trim() === '' ? '' : `: ${text.trim()}`;
  const result = `the server answered ${status}${hint}${detail}`;
  return {
    kind: 'answered',
    status: 'error',
    result,
    isPassing: PASSING.has(status),
    isInDoubt: IN_DOUBT.has(status),
  };
}

/** Only what calls itself JSON and is. */
function parsed(text: string, contentType: string): unknown {
  if (!/^application\/([\w.+-]+\+)?json\b/i.test(contentType)) return text;
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text; // said to be JSON, and is not: the model reads it as it came
  }
}

function descriptorOf(settings: HttpToolSettings): ToolDescriptor {
  const { name, description, parameters, effect, timeout_seconds: timeoutSeconds } = settings;
  return ToolDescriptor.parse({
    tool_id: name,
    name,
    description,
    scope: 'operator',
    schema: parameters,
    operation: effect === 'pure' ? 'get' : 'set',
    effect,
    placement: 'outside',
    read_only: effect === 'pure',
    capability: effect === 'pure' ? 'read' : 'execute',
    interrupt_behavior: settings.interrupt_behavior,
    timeout: timeoutSeconds + MARGIN_SECONDS,
  });
}
