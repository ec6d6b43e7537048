import { createServer, type Server } from 'node:net';
import { UnavailableError } from '@margay/errors';

/** Below the ranges that systems take the ports of outgoing connections from, so that a port stays free across a restart. */
const FIRST_PORT = 20_000;
const BLOCK = 64;
const BLOCKS = 187;

/** Each process starts in a block of its own, so that two launchers do not choose the same ports at the same time. */
let cursor = (process.pid % BLOCKS) * BLOCK;

/** `count` different loopback ports that were free a moment ago; no call of this process answers the same one soon again. */
export async function freePorts(count: number): Promise<number[]> {
  const ports: number[] = [];
  for (let tries = 0; ports.length < count; tries++) {
    if (tries === BLOCK * BLOCKS) throw new UnavailableError('no_free_port', `no ${count} loopback ports are free`);
    const port = FIRST_PORT + cursor;
    cursor = (cursor + 1) % (BLOCK * BLOCKS);
    if (await isPortFree(port)) ports.push(port);
  }
  return ports;
}

export async function isPortFree(port: number): Promise<boolean> {
  try {
    const server = await listen(port);
    await new Promise((resolve) => server.close(resolve));
    return true;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'EADDRINUSE' || code === 'EACCES') return false;
    throw error;
  }
}

function listen(port: number): Promise<Server> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', reject);
    server.listen(port, '127.0.0.1', () => resolve(server));
  });
}
