// The bench model: a scripted OpenAI-compatible server that costs as little as possible, so that what is measured is
// the client. A model name `r<rounds>p<parallel>` decides the script; it keeps nothing between requests.
// usage: node server.mjs [--port N] [--rounds N] [--parallel N] [--tool NAME] [--arguments JSON] [--tokens N]
//        [--latency-ms N] [--delta-ms N] [--scope turn|all] [--trace]
// POST /config {…} changes settings, GET /config shows them, GET /stats, POST /reset.
import { createServer } from 'node:http';
import { parseArgs } from 'node:util';
import { planAnswer, plainBody, streamFrames } from './answer.mjs';
import { scan } from './scan.mjs';
import { applySettings, DEFAULTS } from './settings.mjs';
import { Stats } from './stats.mjs';

const stats = new Stats();
const { port, ...given } = readArguments();
let settings = applySettings(DEFAULTS, given);
let answered = 0;

function readArguments() {
  const number = { type: 'string' };
  const { values } = parseArgs({
    options: {
      port: number, rounds: number, parallel: number, tokens: number, 'latency-ms': number, 'delta-ms': number,
      tool: { type: 'string' }, arguments: { type: 'string' }, scope: { type: 'string' }, trace: { type: 'boolean' },
    }, // prettier-ignore
  });
  const numbers = ['port', 'rounds', 'parallel', 'tokens', 'latency-ms', 'delta-ms'];
  const camelCase = (name) => name.replace(/-(\w)/g, (_, letter) => letter.toUpperCase());
  const entries = Object.entries(values).map(([name, value]) => [
    camelCase(name),
    numbers.includes(name) ? Number(value) : value,
  ]);
  return { port: 0, ...Object.fromEntries(entries) };
}

const server = createServer({ keepAliveTimeout: 60_000, requestTimeout: 0, noDelay: true }, (request, response) => {
  const arrival = settings.trace ? stats.now() : 0;
  const chunks = [];
  request.on('data', (chunk) => chunks.push(chunk));
  request.on('end', () => route(request, chunks.length === 1 ? chunks[0] : Buffer.concat(chunks), arrival, response));
});

function route({ method, url }, body, arrival, response) {
  if (method === 'POST' && url === '/v1/chat/completions') return complete(body, arrival, response);
  if (method === 'GET' && url === '/v1/models')
    return sendJson(response, 200, {
      object: 'list',
      data: [
        {
          id: `r${settings.rounds}p${settings.parallel}`,
          object: 'model',
          created: 1_700_000_000,
          owned_by: 'margay-bench',
        },
      ],
    });
  if (method === 'GET' && url === '/stats') return sendJson(response, 200, stats.report());
  if (method === 'GET' && url === '/config') return sendJson(response, 200, settings);
  if (method === 'POST' && url === '/config') return configure(body, response);
  if (method === 'POST' && url === '/reset') {
    stats.reset();
    return sendJson(response, 200, {});
  }
  return sendJson(response, 404, {
    error: { message: `Invalid URL (${method} ${url})`, type: 'invalid_request_error', param: null, code: null },
  });
}

function configure(body, response) {
  try {
    settings = applySettings(settings, JSON.parse(body.toString('utf8')));
    sendJson(response, 200, settings);
  } catch (error) {
    sendJson(response, 400, {
      error: { message: error.message, type: 'invalid_request_error', param: null, code: null },
    });
  }
}

function complete(body, arrival, response) {
  const request = scan(body.toString('latin1'), settings.scope);
  const plan = planAnswer(request, settings, ++answered);
  stats.count(plan.isAside);
  if (settings.trace) stats.trace(arrival, response);
  const send = () => (request.stream ? sendStream(plan, request.includeUsage, response) : sendPlain(plan, response));
  if (settings.latencyMs > 0) setTimeout(send, settings.latencyMs);
  else send();
}

function sendPlain(plan, response) {
  const body = plainBody(plan);
  response.writeHead(200, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) }).end(body);
}

/** Everything in one write, unless the words are paced. */
function sendStream(plan, includeUsage, response) {
  const { start, word, end } = streamFrames(plan, includeUsage);
  response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8', 'cache-control': 'no-cache' });
  if (settings.deltaMs === 0 || plan.words.length === 0)
    return response.end(start + plan.words.map((text, index) => word(text, index === 0)).join('') + end);
  response.write(start);
  let next = 0;
  const timer = setInterval(() => {
    if (next === plan.words.length) return response.end(end);
    response.write(word(`${plan.words[next]}@${Date.now()}`, next === 0));
    next += 1;
  }, settings.deltaMs);
  response.once('close', () => clearInterval(timer));
}

function sendJson(response, status, body) {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}

server.listen(port, '127.0.0.1', () => {
  process.stdout.write(`bench model listening on http://127.0.0.1:${server.address().port}/v1\n`);
});
for (const name of ['SIGTERM', 'SIGINT'])
  process.on(name, () => {
    server.close();
    server.closeAllConnections();
  });
