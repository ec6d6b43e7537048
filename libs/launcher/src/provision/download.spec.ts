import { createHash } from 'node:crypto';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { temporaryFolder } from '../fixtures.testing';
import { downloadArchive, findChecksum, probe } from './download';

describe('downloadArchive', () => {
  let folder: Awaited<ReturnType<typeof temporaryFolder>>;
  let server: Server;
  let origin: string;
  let checksums: string;

  beforeEach(async () => {
    folder = await temporaryFolder();
    await mkdir(join(folder.path, 'server-1.0.0'));
    await writeFile(join(folder.path, 'server-1.0.0/server'), 'the program');
    execFileSync('tar', ['-czf', 'server.tar.gz', 'server-1.0.0'], { cwd: folder.path });
    const archive = readFileSync(join(folder.path, 'server.tar.gz'));
    checksums = `${createHash('sha256').update(archive).digest('hex')}  server.tar.gz\n${'0'.repeat(64)}  other.tar.gz\n`;
    server = createServer((request, response) => {
      if (request.url === '/server.tar.gz') response.end(request.method === 'HEAD' ? undefined : archive);
      else if (request.url === '/SHA256SUMS') response.end(checksums);
      else response.writeHead(404).end();
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  });
  afterEach(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
    await folder.remove();
  });

  const download = (name: string, progress: (line: string) => void = () => undefined) =>
    downloadArchive(
      { label: 'server 1.0.0', url: `${origin}/${name}`, checksumUrl: `${origin}/SHA256SUMS`, progress },
      join(folder.path, 'target'),
    );

  it('unpacks what it fetched and tells how far it is', async () => {
    const lines: string[] = [];
    await download('server.tar.gz', (line) => lines.push(line));
    expect(await readFile(join(folder.path, 'target/server-1.0.0/server'), 'utf8')).toBe('the program');
    expect(lines[0]).toMatch(/^server 1\.0\.0: 0 of 0 MB$|^server 1\.0\.0: 0 MB$/);
  });

  it('refuses an archive with another checksum', async () => {
    checksums = `${'0'.repeat(64)}  server.tar.gz\n`;
    await expect(download('server.tar.gz')).rejects.toMatchObject({ reason: 'checksum_mismatch' });
  });

  it('refuses an archive that the checksums do not name', async () => {
    checksums = `${'0'.repeat(64)}  a.tar.gz\n${'0'.repeat(64)}  b.tar.gz\n`;
    await expect(download('server.tar.gz')).rejects.toMatchObject({ reason: 'checksum_mismatch' });
  });

  it('tells what a missing archive was answered with', async () => {
    await expect(download('missing.tar.gz')).rejects.toThrow(/missing\.tar\.gz answered 404/);
  });

  it('names a host that cannot be reached', async () => {
    await expect(probe('http://127.0.0.1:1/x')).rejects.toThrow(/127\.0\.0\.1:1 cannot be reached \(/);
  });
});

describe('findChecksum', () => {
  const sum = 'a'.repeat(64);

  it('reads the line of the file, or the only line', () => {
    expect(findChecksum(`${'b'.repeat(64)} *x.tgz\n${sum} *y.tgz\n`, 'y.tgz')).toBe(sum);
    expect(findChecksum(`${sum}\n`, 'y.tgz')).toBe(sum);
    expect(findChecksum('not a checksum', 'y.tgz')).toBeUndefined();
  });
});
