import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { SandboxClassName } from '@margay/contracts';
import { InvalidArgumentError } from '@margay/errors';
import { parse } from 'yaml';
import { z } from 'zod';

const Quantity = z.string().regex(/^\d+(\.\d+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$/);

/** The operator's template of sandboxes (cluster §1.6). */
export const SandboxClass = z.strictObject({
  /** Absent: the image of the installation. Any other is given Node and the daemon when a pod starts. */
  image: z.string().optional(),
  cpu: z.strictObject({ request: Quantity, limit: Quantity }),
  memory: z.strictObject({ request: Quantity, limit: Quantity }),
  workspace: Quantity,
  /** A volume that fills up grows so far, where its storage class can do that. Absent: it does not grow. */
  maxWorkspace: Quantity.optional(),
  scratch: Quantity,
  /** `volume`: a volume per workspace, which outlives its pods; `snapshot`: a folder of the pod, which ends with it. */
  storage: z.enum(['volume', 'snapshot']),
  /** Absent: the cluster's default. */
  storageClass: z.string().optional(),
  accessMode: z.enum(['ReadWriteOnce', 'ReadWriteMany']).default('ReadWriteOnce'),
  egress: z.enum(['proxy', 'none']),
  warm: z.strictObject({ min: z.number().int().min(0), max: z.number().int().min(0) }),
  runtimeClassName: z.string().optional(),
  /** False: root inside is nobody outside, where nodes and volumes can do that. Absent: as the cluster does. */
  hostUsers: z.boolean().optional(),
  nodeSelector: z.record(z.string(), z.string()).optional(),
  tolerations: z.array(z.record(z.string(), z.unknown())).optional(),
});
export type SandboxClass = Readonly<z.infer<typeof SandboxClass>>;

export type SandboxClasses = Readonly<Record<string, SandboxClass>>;

export const DEFAULT_CLASSES: SandboxClasses = {
  default: {
    cpu: { request: '250m', limit: '1' },
    memory: { request: '512Mi', limit: '2Gi' },
    workspace: '10Gi',
    scratch: '4Gi',
    storage: 'volume',
    accessMode: 'ReadWriteOnce',
    egress: 'proxy',
    warm: { min: 2, max: 20 },
  },
  dense: {
    cpu: { request: '100m', limit: '1' },
    memory: { request: '256Mi', limit: '1Gi' },
    workspace: '2Gi',
    scratch: '2Gi',
    storage: 'snapshot',
    accessMode: 'ReadWriteOnce',
    egress: 'proxy',
    warm: { min: 4, max: 50 },
  },
  strict: {
    cpu: { request: '250m', limit: '1' },
    memory: { request: '256Mi', limit: '512Mi' },
    workspace: '1Gi',
    scratch: '1Gi',
    storage: 'snapshot',
    accessMode: 'ReadWriteOnce',
    egress: 'none',
    warm: { min: 0, max: 5 },
  },
};

/** The classes of a YAML or JSON file, which takes the place of the usual ones. @throws INVALID_ARGUMENT `bad_classes` */
export function readClasses(file: string | undefined): SandboxClasses {
  if (file === undefined) return DEFAULT_CLASSES;
  const parsed = z.record(SandboxClassName, SandboxClass).safeParse(parse(readFileSync(file, 'utf8')));
  if (!parsed.success) {
    const where = parsed.error.issues.map((issue) => `${issue.path.join('.')}: ${issue.message}`).join('; ');
    throw new InvalidArgumentError('bad_classes', `${file} holds no sandbox classes: ${where}`);
  }
  if (!parsed.data['default'])
    throw new InvalidArgumentError('bad_classes', `${file} has no class "default", which sessions use.`);
  return parsed.data;
}

/** Tells pods apart that were made from other settings. */
export function specHashOf(...facts: unknown[]): string {
  return createHash('sha256').update(JSON.stringify(facts)).digest('hex').slice(0, 12);
}

const UNITS: Record<string, number> = {
  '': 1,
  m: 1e-3,
  k: 1e3,
  M: 1e6,
  G: 1e9,
  T: 1e12,
  Ki: 1024,
  Mi: 1024 ** 2,
  Gi: 1024 ** 3,
  Ti: 1024 ** 4,
};

export function bytesOf(quantity: string): number {
  const [, number = '0', unit = ''] = /^([\d.]+)(\w*)$/.exec(quantity) ?? [];
  return Math.floor(Number(number) * (UNITS[unit] ?? 1));
}
