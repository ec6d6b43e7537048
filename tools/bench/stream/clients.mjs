import { fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';

const LISTENERS = new URL('./listeners.mjs', import.meta.url);

/** The process of the SSE clients: `open(sessionIds)`, `reset()`, `collect()`, `close()`, `stop()`. */
export function startClients({ platform }, script = LISTENERS) {
  const child = fork(fileURLToPath(script), { serialization: 'advanced' });
  const pending = new Map();
  let count = 0;
  child.on('message', ({ id, answer, error }) => {
    const { resolve, reject } = pending.get(id);
    pending.delete(id);
    if (error === undefined) resolve(answer);
    else reject(new Error(error));
  });
  const ask = (command, argument = {}) =>
    new Promise((resolve, reject) => {
      count += 1;
      pending.set(count, { resolve, reject });
      child.send({ id: count, command, ...argument });
    });
  const { gatewayUrl, apiKey } = platform;
  return {
    pid: child.pid,
    open: (sessionIds) => ask('open', { gatewayUrl, apiKey, sessionIds }),
    reset: () => ask('reset'),
    collect: () => ask('collect'),
    close: () => ask('close'),
    async stop() {
      if (child.exitCode !== null || !child.connected) return;
      child.disconnect();
      await once(child, 'exit');
    },
  };
}
