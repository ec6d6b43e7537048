import { createHash } from 'node:crypto';
import { createReadStream, createWriteStream } from 'node:fs';
import { mkdir, rm } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { ReadableStream } from 'node:stream/web';
import { UnavailableError } from '@margay/errors';
import { runCommand } from '../processes/run-command';
import type { Progress } from '../progress';

const PROBE_LIMIT_MS = 3_000;
const DOWNLOAD_LIMIT_MS = 15 * 60_000;

export interface Archive {
  /** What is fetched, for the progress lines. */
  label: string;
  url: string;
  /** Text whose line for this archive (or only word) is its SHA-256. */
  checksumUrl: string;
  progress: Progress;
}

/** Fails within 3 s where the host cannot be reached, so that machines behind a closed network lose no time. */
export async function probe(url: string): Promise<void> {
  await request(url, { method: 'HEAD', signal: AbortSignal.timeout(PROBE_LIMIT_MS) });
}

/** Downloads a tar archive, compares its SHA-256 and unpacks it into the folder. */
export async function downloadArchive(archive: Archive, directory: string): Promise<void> {
  await probe(archive.url);
  const file = join(directory, basename(new URL(archive.url).pathname));
  await mkdir(directory, { recursive: true });
  await downloadFile(archive, file);
  await verifyChecksum(archive, file);
  await runCommand('tar', ['-xzf', file, '-C', directory], { timeoutMs: 120_000 });
  await rm(file);
}

async function downloadFile({ url, label, progress }: Archive, file: string): Promise<void> {
  const response = await request(url, { signal: AbortSignal.timeout(DOWNLOAD_LIMIT_MS) });
  if (!response.body) throw new UnavailableError('download_failed', `${url} answered without a body`);
  const report = progressReporter(label, Number(response.headers.get('content-length') ?? 0), progress);
  const body = Readable.fromWeb(response.body as ReadableStream<Uint8Array>);
  await pipeline(body, report, createWriteStream(file));
}

function progressReporter(label: string, totalBytes: number, progress: Progress) {
  return async function* (chunks: AsyncIterable<Uint8Array>) {
    let received = 0;
    let nextReport = 0;
    for await (const chunk of chunks) {
      received += chunk.length;
      if (received >= nextReport) {
        progress(`${label}: ${megabytes(received)}${totalBytes > 0 ? ` of ${megabytes(totalBytes)}` : ''} MB`);
        nextReport = received + Math.max(totalBytes / 10, 5_000_000);
      }
      yield chunk;
    }
  };
}

function megabytes(bytes: number): string {
  return (bytes / 1_000_000).toFixed(0);
}

async function verifyChecksum({ url, checksumUrl }: Archive, file: string): Promise<void> {
  const response = await request(checksumUrl, { signal: AbortSignal.timeout(30_000) });
  const expected = findChecksum(await response.text(), basename(new URL(url).pathname));
  const hash = createHash('sha256');
  await pipeline(createReadStream(file), hash);
  const actual = hash.digest('hex');
  if (actual !== expected) {
    throw new UnavailableError(
      'checksum_mismatch',
      `${url} has SHA-256 ${actual}, expected ${expected ?? 'a line for it in ' + checksumUrl}`,
    );
  }
}

/** The checksum of a file in `sha256sum` output, or the only one there is. */
export function findChecksum(text: string, fileName: string): string | undefined {
  const lines = text.trim().split('\n');
  const line =
    lines.find((candidate) => candidate.trim().endsWith(fileName)) ?? (lines.length === 1 ? lines[0] : undefined);
  return line?.match(/\b[0-9a-f]{64}\b/i)?.[0].toLowerCase();
}

async function request(url: string, init: RequestInit): Promise<Response> {
  const response = await fetch(url, init).catch((cause: unknown) => {
    throw new UnavailableError('download_failed', `${new URL(url).host} cannot be reached (${reasonOf(cause)})`, {
      cause,
    });
  });
  if (!response.ok) throw new UnavailableError('download_failed', `${url} answered ${response.status}`);
  return response;
}

function reasonOf(cause: unknown): string {
  const inner = cause instanceof Error ? ((cause.cause ?? cause) as NodeJS.ErrnoException) : undefined;
  return inner?.code ?? inner?.message ?? String(cause);
}
