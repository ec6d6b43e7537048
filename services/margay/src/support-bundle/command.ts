import { mkdir, open, readdir, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { parseArgs } from 'node:util';
import { FailedPreconditionError, InvalidArgumentError } from '@margay/errors';
import { scrubText } from '@margay/platform';
import { reasonOf, type Finding } from '../doctor/finding';

const USAGE = `Usage: margay.cjs support-bundle --to FOLDER [--metrics URL]… [--log FILE]…
Writes what helps to understand a fault: the doctor's findings, versions, counts of the store, metrics of the named
management ports, and the ends of the named log files. No prompts, answers, keys or values of settings.`;

const LOG_BYTES = 5 * 1024 * 1024;
const METRICS_TIMEOUT_MS = 5_000;

export interface BundleCommand {
  to: string;
  metrics: string[];
  logs: string[];
}

export interface BundleContext {
  version: string;
  environment: NodeJS.ProcessEnv;
  examine: () => Promise<Finding[]>;
  /** Counts and processes of the store. */
  describeStore: () => Promise<object>;
  write: (line: string) => void;
}

/** @throws InvalidArgumentError `usage` */
export function parseSupportBundle(argv: readonly string[]): BundleCommand {
  try {
    const many = { type: 'string', multiple: true } as const;
    const options = { to: { type: 'string' }, metrics: many, log: many } as const;
    const { to, metrics, log } = parseArgs({ args: [...argv], options }).values;
    if (to !== undefined) return { to, metrics: metrics ?? [], logs: log ?? [] };
  } catch {
    // The usage says it better.
  }
  throw new InvalidArgumentError('usage', USAGE);
}

/** What can't be had is named in the bundle instead. @throws FailedPreconditionError `not_empty` */
export async function writeSupportBundle({ to, metrics, logs }: BundleCommand, context: BundleContext): Promise<void> {
  await mkdir(to, { recursive: true, mode: 0o700 });
  if ((await readdir(to)).length > 0)
    throw new FailedPreconditionError('not_empty', `${to} is not empty; name another folder.`);
  const put = async (name: string, content: () => Promise<string>): Promise<void> => {
    const text = await content().catch((error: unknown) => `could not be had: ${reasonOf(error)}\n`);
    await writeFile(join(to, name), scrubText(text), { mode: 0o600 });
  };
  await put('about.json', async () => json(about(context)));
  await put('doctor.json', async () => json(await context.examine()));
  await put('store.json', async () => json(await context.describeStore()));
  for (const [index, url] of metrics.entries()) await put(`metrics-${index + 1}.txt`, () => metricsOf(url));
  for (const [index, path] of logs.entries()) await put(`log-${index + 1}-${basename(path)}`, () => endOf(path));
  context.write(`${to} holds ${(await readdir(to)).length} files; read them before you hand them on`);
}

const json = (value: unknown): string => `${JSON.stringify(value, null, 2)}\n`;

/** Of settings the names alone: a value may be a secret. */
function about({ version, environment }: BundleContext): object {
  const settings = Object.keys(environment).filter((name) => /^(MARGAY|OTEL|OPENAI)_/.test(name)).sort(); // prettier-ignore
  const { node, openssl, v8 } = process.versions;
  return { version, at: new Date().toISOString(), platform: process.platform, arch: process.arch, versions: { node, openssl, v8 }, settings }; // prettier-ignore
}

async function metricsOf(url: string): Promise<string> {
  const address = url.endsWith('/metrics') ? url : `${url.replace(/\/$/, '')}/metrics`;
  return (await fetch(address, { signal: AbortSignal.timeout(METRICS_TIMEOUT_MS) })).text();
}

/** The last whole lines. */
async function endOf(path: string): Promise<string> {
  const file = await open(path);
  try {
    const { size } = await file.stat();
    const from = Math.max(0, size - LOG_BYTES);
    const { buffer, bytesRead } = await file.read(Buffer.alloc(size - from), 0, size - from, from);
    const text = buffer.subarray(0, bytesRead).toString();
    return from === 0 ? text : text.slice(text.indexOf('\n') + 1);
  } finally {
    await file.close();
  }
}
