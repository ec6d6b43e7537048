// The least an HTTP client can be: its own cost and queues must not be what is measured.
import { Agent, request } from 'node:http';

/** `call(method, path, body)` over kept connections; answers `{ status, text, ms }`. */
export function httpClient(origin, apiKey, connections) {
  const agent = new Agent({ keepAlive: true, maxSockets: connections, noDelay: true });
  const call = (method, path, body) =>
    new Promise((resolve, reject) => {
      const payload = body === undefined ? '' : JSON.stringify(body);
      const headers = { 'x-api-key': apiKey, 'content-type': 'application/json', 'content-length': Buffer.byteLength(payload) }; // prettier-ignore
      const startMs = performance.now();
      const outgoing = request(new URL(path, origin), { method, agent, headers }, (response) => {
        let text = '';
        response.setEncoding('utf8');
        response.on('data', (piece) => (text += piece));
        response.on('error', reject);
        response.on('end', () => resolve({ status: response.statusCode, text, ms: performance.now() - startMs }));
      });
      outgoing.on('error', reject);
      outgoing.end(payload);
    });
  return { call, close: () => agent.destroy() };
}
