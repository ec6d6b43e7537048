// The floor: the least a client must do for a run against the bench model, with node:http and no framework:
// send the growing message list, read the stream, put the calls together, answer each, until the model is done.
// usage: node floor.mjs <base URL> [--rounds N] [--parallel N] [--plain] [--repeat N] [--result-bytes N]
import { Agent, request } from 'node:http';
import { performance } from 'node:perf_hooks';
import { pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';

const TOOLS = [
  {
    type: 'function',
    function: {
      name: 'read_file',
      description: 'Read a file',
      parameters: {
        type: 'object',
        properties: { path: { type: 'string' }, limit: { type: 'integer' } },
        required: ['path'],
      },
    },
  },
];

/**
 * Plays the run `repeat` times, after one that is not counted, and measures the median one in this process.
 * A step is one model call, the final one included: rounds + 1.
 * @returns `{ rounds, parallel, stream, steps, wallMs, wallMsPerStep, cpuMs, cpuMsPerStep }`
 */
export async function measureFloor({
  baseUrl,
  rounds = 200,
  parallel = 1,
  stream = true,
  repeat = 3,
  resultBytes = 32,
}) {
  const options = {
    url: `${baseUrl}/chat/completions`,
    model: `r${rounds}p${parallel}`,
    stream,
    result: 'x'.repeat(resultBytes),
    agent: new Agent({ keepAlive: true, maxSockets: 1, noDelay: true }),
  };
  const samples = [];
  try {
    await playRun(options);
    for (let turn = 0; turn < repeat; turn += 1) samples.push(await measure(() => playRun(options)));
  } finally {
    options.agent.destroy();
  }
  const { steps, wallMs, cpuMs } = samples.sort((a, b) => a.cpuMs - b.cpuMs)[Math.floor(repeat / 2)];
  if (steps !== rounds + 1)
    throw new Error(`the bench model ended the run after ${steps} model calls instead of ${rounds + 1}`);
  return { rounds, parallel, stream, steps, wallMs, wallMsPerStep: wallMs / steps, cpuMs, cpuMsPerStep: cpuMs / steps };
}

async function measure(work) {
  const cpu = process.cpuUsage();
  const start = performance.now();
  const steps = await work();
  const wallMs = performance.now() - start;
  const { user, system } = process.cpuUsage(cpu);
  return { steps, wallMs, cpuMs: (user + system) / 1000 };
}

/** The text of the answer; node:http on one kept connection costs half of what fetch does. */
function post(url, agent, body) {
  const headers = {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(body),
    authorization: 'Bearer none',
  };
  return new Promise((resolve, reject) => {
    const outgoing = request(url, { method: 'POST', agent, headers }, (response) => {
      let text = '';
      response.setEncoding('utf8');
      response.on('data', (piece) => (text += piece));
      response.on('error', reject);
      response.on('end', () => {
        if (response.statusCode === 200) resolve(text);
        else reject(new Error(`the model answered ${response.statusCode}: ${text}`));
      });
    });
    outgoing.on('error', reject);
    outgoing.end(body);
  });
}

/** One run to its end; the number of model calls it took. */
async function playRun({ url, agent, model, stream, result }) {
  const messages = [{ role: 'user', content: 'go' }];
  for (let steps = 1; ; steps += 1) {
    const body = { model, messages, tools: TOOLS, stream, ...(stream && { stream_options: { include_usage: true } }) };
    const text = await post(url, agent, JSON.stringify(body));
    const calls = stream ? callsOfStream(text) : (JSON.parse(text).choices[0].message.tool_calls ?? []);
    if (calls.length === 0) return steps;
    messages.push({ role: 'assistant', content: null, tool_calls: calls });
    for (const call of calls) {
      JSON.parse(call.function.arguments);
      messages.push({ role: 'tool', tool_call_id: call.id, content: result });
    }
  }
}

function callsOfStream(text) {
  const calls = [];
  for (const line of text.split('\n')) {
    if (!line.startsWith('data: {')) continue;
    for (const { index, id, function: part } of JSON.parse(line.slice(6)).choices[0]?.delta.tool_calls ?? []) {
      calls[index] ??= { id, type: 'function', function: { name: part.name, arguments: '' } };
      calls[index].function.arguments += part.arguments;
    }
  }
  return calls;
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  const text = { type: 'string' };
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { rounds: text, parallel: text, repeat: text, 'result-bytes': text, plain: { type: 'boolean' } },
  });
  const number = (name) => (values[name] === undefined ? undefined : Number(values[name]));
  const measured = await measureFloor({
    baseUrl: positionals[0],
    rounds: number('rounds'),
    parallel: number('parallel'),
    repeat: number('repeat'),
    resultBytes: number('result-bytes'),
    stream: values.plain !== true,
  });
  process.stdout.write(`${JSON.stringify(measured)}\n`);
}
