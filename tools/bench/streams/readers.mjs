// Very many SSE clients in one process: bare sockets, since what a client library keeps per stream would be measured too.
import { connect } from 'node:net';

/** Times since the machine started: the same clock in every process. */
const nowUs = () => Number(process.hrtime.bigint() / 1000n);
const OPENING_AT_ONCE = 200;
const open = new Set();
/** By session and seq: how many streams have it, and when the first and the last got it. */
let arrivals = new Map();
let broken = 0;

const handlers = {
  /** Opens a stream per session named; resolves once each has said what is so far. */
  async open({ gatewayUrl, apiKey, sessionIds }) {
    const waiting = [...sessionIds];
    const openSome = async () => {
      for (let id = waiting.pop(); id !== undefined; id = waiting.pop()) await listen(new URL(gatewayUrl), apiKey, id);
    };
    await Promise.all(Array.from({ length: OPENING_AT_ONCE }, openSome));
  },
  reset() {
    arrivals = new Map();
  },
  collect: () => ({ open: open.size, broken, arrivals: [...arrivals].map(([key, value]) => [key, ...value]) }),
  close() {
    for (const socket of open) socket.destroy();
    open.clear();
  },
};

function listen({ hostname, port, host }, apiKey, sessionId) {
  return new Promise((resolve, reject) => {
    const socket = connect({ host: hostname, port: Number(port), noDelay: true });
    let rest = '';
    let isReady = false;
    socket.setEncoding('latin1');
    socket.on('data', (text) => {
      const arrivedUs = nowUs();
      const all = rest + text;
      const end = all.lastIndexOf('\n\n');
      // Nothing is kept while nothing comes.
      rest = end < 0 ? all : all.slice(end + 2);
      if (!isReady && all.includes('"type":"session_state"')) {
        isReady = true;
        resolve();
      }
      for (const [, seq] of all.slice(0, Math.max(0, end)).matchAll(/"seq":(\d+)[^\n]*$/gm)) note(`${sessionId} ${seq}`, arrivedUs); // prettier-ignore
    });
    socket.on('error', reject);
    socket.on('close', () => {
      if (open.delete(socket)) broken += 1;
    });
    open.add(socket);
    socket.write(`GET /api/sessions/${sessionId}/stream HTTP/1.1\r\nHost: ${host}\r\nX-API-KEY: ${apiKey}\r\n\r\n`);
  });
}

function note(key, arrivedUs) {
  const known = arrivals.get(key);
  if (known) {
    known[0] += 1;
    known[2] = arrivedUs;
  } else arrivals.set(key, [1, arrivedUs, arrivedUs]);
}

process.on('message', async ({ id, command, ...argument }) => {
  try {
    process.send({ id, answer: await handlers[command](argument) });
  } catch (error) {
    process.send({ id, error: String(error) });
  }
});
process.on('disconnect', () => process.exit());
