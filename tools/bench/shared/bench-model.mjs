// The bench model as a process of its own.
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { startProcess } from '../../../libs/launcher/dist/index.js';

const entry = fileURLToPath(new URL('../model/server.mjs', import.meta.url));

/** `{ baseUrl, pid, stats(), reset(), configure(settings), stop() }`; it keeps the times of every request. */
export async function startBenchModel(directory) {
  const server = await startProcess({
    name: 'bench-model',
    entry,
    args: ['--port', '0', '--trace'],
    readyLine: /listening on (http:\/\/127\.0\.0\.1:\d+)\/v1/,
    logFile: join(directory, 'bench-model.log'),
  });
  const [, origin] = server.ready;
  const control = async (method, path, body) => {
    const response = await fetch(`${origin}${path}`, { method, ...(body && { body: JSON.stringify(body) }) });
    return response.json();
  };
  return {
    baseUrl: `${origin}/v1`,
    pid: server.pid,
    stats: () => control('GET', '/stats'),
    reset: () => control('POST', '/reset'),
    configure: (settings) => control('POST', '/config', settings),
    stop: () => server.stop(),
  };
}

/** Milliseconds between an answer's end and the next request's arrival, of one client that asks in turn. */
export const gapsOf = ({ gaps_us: gaps }) => gaps.map((gap) => gap / 1000);
