import { tmpdir } from 'node:os';
import { parseArgs } from 'node:util';
import { InvalidArgumentError } from '@margay/errors';
import type { DoctorConfig } from '../config';
import { checkBlobs } from './check-blobs';
import { checkCluster } from './cluster/check-cluster';
import { checkCertificate } from './check-certificate';
import { checkKeys } from './check-keys';
import { checkMachine } from './check-machine';
import { checkNats } from './check-nats';
import { checkStore } from './check-store';
import { checkStream } from './check-stream';
import { exitCodeOf, type Finding } from './finding';

const USAGE = `Usage: margay.cjs doctor [--quick] [--cluster] [--url URL] [--json]
Checks the document store, the bucket of blobs, NATS, keys, clocks and disks that the environment names (docs/operating.md).
--quick leaves out what the store promises, which takes half a minute and writes into a database of its own.
--cluster also starts a sandbox that tries what it must not reach; run it in a pod of session.
--url also watches a stream for 70 s the way clients do, with the key of MARGAY_CHECK_KEY or MARGAY_CHECK_KEY_FILE.`;

export interface DoctorCommand {
  isQuick: boolean;
  isCluster: boolean;
  /** Where clients reach the gateway; absent: that is not looked at. */
  url?: string;
  asJson: boolean;
}

/** @throws InvalidArgumentError `usage` */
export function parseDoctor(argv: readonly string[]): DoctorCommand {
  try {
    const flag = { type: 'boolean', default: false } as const;
    const options = { quick: flag, cluster: flag, json: flag, url: { type: 'string' } } as const;
    const { quick, cluster, json, url } = parseArgs({ args: [...argv], options }).values;
    if (url !== undefined && !URL.canParse(url)) throw new Error(`"${url}" is no URL`);
    return { isQuick: quick, isCluster: cluster, asJson: json, ...(url === undefined ? {} : { url }) };
  } catch (error) {
    throw new InvalidArgumentError('usage', `${(error as Error).message}\n${USAGE}`);
  }
}

export interface DoctorContext {
  config: DoctorConfig;
  write: (line: string) => void;
  progress: (line: string) => void;
}

/** @returns the exit code: 0 all is well, 1 warnings, 2 faults */
export async function doctor(command: DoctorCommand, context: DoctorContext): Promise<number> {
  const { asJson } = command;
  const findings = await examine(context, command);
  for (const finding of findings) context.write(asJson ? JSON.stringify(finding) : sentence(finding));
  const code = exitCodeOf(findings);
  if (!asJson) context.write(SUMMARIES[code]);
  return code;
}

/** Everything that can be looked at from here. */
export async function examine(
  { config, progress }: DoctorContext,
  { isQuick, isCluster, url }: Omit<DoctorCommand, 'asJson'>,
): Promise<Finding[]> {
  const store = { url: config.MARGAY_MONGODB_URL, database: config.MARGAY_MONGODB_DATABASE, kekFile: config.MARGAY_KEK_FILE, withContract: !isQuick, progress }; // prettier-ignore
  return [
    ...(await checkMachine([config.MARGAY_HOME ?? tmpdir(), tmpdir()])),
    ...(await checkKeys(config.MARGAY_KEYS_DIR)),
    ...(await checkCertificate(config.MARGAY_TLS_DIR)),
    ...(await checkNats(config.MARGAY_NATS_URL)),
    ...(await checkStore(store)),
    ...(await checkBlobs(config)),
    ...(isCluster ? await checkCluster({ config, progress }) : []),
    ...(url === undefined ? [] : await checkStream({ url, apiKey: config.MARGAY_CHECK_KEY })),
  ];
}

const SUMMARIES = ['all is well', 'it works, with warnings', 'something is wrong'] as const;
const SIGNS = { ok: 'ok     ', warning: 'WARNING', fault: 'FAULT  ' } as const;

function sentence({ check, status, detail, fix }: Finding): string {
  return `${SIGNS[status]} ${check}: ${detail}${fix === undefined ? '' : `\n        fix: ${fix}`}`;
}
