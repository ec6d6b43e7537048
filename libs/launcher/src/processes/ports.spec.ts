import { createServer } from 'node:net';
import { freePorts, isPortFree } from './ports';

describe('freePorts', () => {
  it('answers different ports that can be listened on, outside the range of outgoing connections', async () => {
    const ports = [...(await freePorts(20)), ...(await freePorts(20))];
    expect(new Set(ports).size).toBe(40);
    expect(Math.max(...ports)).toBeLessThan(32_768);
    expect(await Promise.all(ports.map(isPortFree))).not.toContain(false);
  });

  it('passes over a port in use', async () => {
    const [taken = 0] = await freePorts(1);
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(taken + 1, '127.0.0.1', resolve));
    try {
      expect(await isPortFree(taken + 1)).toBe(false);
      expect(await freePorts(1)).not.toContain(taken + 1);
    } finally {
      await new Promise((resolve) => server.close(resolve));
    }
  });
});
