// SSE clients in a process of their own, so that what they cost delays nobody. Told what to do by messages of its parent.
import { Agent, get } from 'node:http';

const agent = new Agent({ maxSockets: Infinity });
/** Times since the machine started: the same clock in every process. */
const nowUs = () => Number(process.hrtime.bigint() / 1000n);
let delivered = 0;
/** Arrivals at the first listener of each session: `[session id, seq, µs]`. */
let arrivals = [];
/** `{ completionUs, endUs }` of streams that ended. */
let endings = [];
const open = [];

const handlers = {
  async open({ gatewayUrl, apiKey, sessionIds }) {
    const seen = new Set();
    const opened = await Promise.all(
      sessionIds.map((sessionId) => {
        const isFirst = !seen.has(sessionId);
        seen.add(sessionId);
        return listen(new URL(`/api/sessions/${sessionId}/stream`, gatewayUrl), apiKey, sessionId, isFirst);
      }),
    );
    open.push(...opened);
  },
  reset() {
    delivered = 0;
    arrivals = [];
    endings = [];
  },
  collect: () => ({ delivered, arrivals, endings }),
  close() {
    for (const stream of open.splice(0)) stream.destroy();
  },
};

/** Resolves once the stream has said what is so far. */
function listen(url, apiKey, sessionId, isFirst) {
  return new Promise((resolve, reject) => {
    const request = get(url, { agent, headers: { 'x-api-key': apiKey } }, (response) => {
      if (response.statusCode !== 200) return reject(new Error(`stream answered ${response.statusCode}`));
      let rest = '';
      let completionUs;
      response.setEncoding('utf8');
      response.on('data', (text) => {
        const arrivedUs = nowUs();
        const blocks = (rest + text).split('\n\n');
        rest = blocks.pop();
        for (const block of blocks) {
          if (block.includes('"type":"session_state"')) resolve(request);
          if (block.includes('"type":"stream_end"')) endings.push({ completionUs, endUs: arrivedUs });
          const seq = seqOf(block);
          if (seq === undefined) continue;
          if (block.includes('"type":"completion"')) completionUs = arrivedUs;
          delivered += 1;
          if (isFirst) arrivals.push([sessionId, seq, arrivedUs]);
        }
      });
      response.on('error', () => undefined); // a stream cut by `close`
    });
    request.on('error', reject);
  });
}

/** Number of the stored event in a frame; it stands behind the payload. */
function seqOf(block) {
  const at = block.lastIndexOf('"seq":');
  return at < 0 ? undefined : Number.parseInt(block.slice(at + 6, at + 18), 10);
}

process.on('message', async ({ id, command, ...argument }) => {
  try {
    process.send({ id, answer: await handlers[command](argument) });
  } catch (error) {
    process.send({ id, error: String(error) });
  }
});
process.on('disconnect', () => process.exit());
