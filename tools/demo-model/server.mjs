// Margay's demonstration model: an OpenAI-compatible server on loopback that plays an agent by fixed rules.
// usage: node server.mjs [--port N] [--delta-ms N]
import { createServer } from 'node:http';
import { parseArgs } from 'node:util';
import { Completions, MODEL_ID, RequestError } from './completion.mjs';
import { completionBody, streamAnswer } from './wire.mjs';

const MAX_BODY_BYTES = 64 * 1024 * 1024;

const { values } = parseArgs({
  options: { port: { type: 'string', default: '0' }, 'delta-ms': { type: 'string', default: '0' } },
});
const port = numberOption('port', 65_535);
const deltaMs = numberOption('delta-ms', 60_000);
const completions = new Completions();

function numberOption(name, max) {
  const value = Number(values[name]);
  if (Number.isInteger(value) && value >= 0 && value <= max) return value;
  process.stderr.write(`--${name} must be a whole number from 0 to ${max}, not “${values[name]}”.\n`);
  process.exit(2);
}

async function serve(request, response) {
  const path = new URL(request.url, 'http://loopback').pathname;
  if (request.method === 'GET' && path === '/v1/models') return send(response, 200, modelList());
  if (request.method === 'GET' && path === `/v1/models/${MODEL_ID}`) return send(response, 200, modelList().data[0]);
  if (request.method === 'POST' && path === '/v1/chat/completions') return complete(request, response);
  throw new RequestError(
    404,
    `Invalid URL (${request.method} ${path}). This is Margay's demonstration model; it has /v1/models and /v1/chat/completions.`,
  );
}

async function complete(request, response) {
  const gone = new AbortController();
  response.once('close', () => gone.abort());
  const body = await readJson(request);
  const answer = completions.answer(body);
  if (!body.stream) return send(response, 200, completionBody(answer));
  await streamAnswer(answer, {
    response,
    deltaMs,
    signal: gone.signal,
    includeUsage: body.stream_options?.include_usage === true,
  });
}

async function readJson(request) {
  const chunks = [];
  let bytes = 0;
  for await (const chunk of request) {
    bytes += chunk.length;
    if (bytes > MAX_BODY_BYTES) throw new RequestError(413, `The request body is larger than ${MAX_BODY_BYTES} bytes.`);
    chunks.push(chunk);
  }
  try {
    return JSON.parse(Buffer.concat(chunks).toString('utf8'));
  } catch (error) {
    throw new RequestError(400, `We could not parse the JSON body of your request. (${error.message})`);
  }
}

const modelList = () => ({
  object: 'list',
  data: [{ id: MODEL_ID, object: 'model', created: 1_700_000_000, owned_by: 'margay-demonstration' }],
});

function send(response, status, body) {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}

function fail(response, error) {
  if (response.headersSent || response.destroyed) return void response.destroy();
  if (error instanceof RequestError) return send(response, error.status, error.body);
  process.stderr.write(`demo model failed: ${error.stack}\n`);
  send(response, 500, {
    error: {
      message: `The demonstration model failed: ${error.message}`,
      type: 'server_error',
      param: null,
      code: null,
    },
  });
}

const server = createServer({ keepAliveTimeout: 60_000, requestTimeout: 0 }, (request, response) => {
  serve(request, response).catch((error) => fail(response, error));
});
server.on('error', (error) => {
  process.stderr.write(`demo model cannot listen on 127.0.0.1:${port}: ${error.message}\n`);
  process.exit(1);
});
server.listen(port, '127.0.0.1', () => {
  process.stdout.write(`demo model listening on http://127.0.0.1:${server.address().port}/v1\n`);
});

for (const name of ['SIGTERM', 'SIGINT'])
  process.on(name, () => {
    server.close();
    server.closeAllConnections();
  });
