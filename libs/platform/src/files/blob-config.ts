import { InvalidArgumentError } from '@margay/errors';
import { z } from 'zod';

/** Where the bytes of blobs, uploads and archives lie; see docs/installing.md. Part of the environment of who reads them. */
export const BLOB_SETTINGS = {
  MARGAY_BLOB_DRIVER: z.enum(['gridfs', 's3']).default('gridfs').describe('gridfs or s3'),
  MARGAY_S3_ENDPOINT: z
    .url({ protocol: /^https?$/ })
    .optional()
    .describe('URL of the server; without it Amazon S3'),
  MARGAY_S3_BUCKET: z.string().min(1).optional().describe('name of the bucket'),
  MARGAY_S3_REGION: z.string().min(1).default('us-east-1').describe('name of the region'),
  MARGAY_S3_PATH_STYLE: z
    .stringbool()
    .optional()
    .describe('true: the bucket stands in the path, not in the host name; default true with an endpoint'),
  MARGAY_S3_ACCESS_KEY_ID: z.string().optional().describe('id of the access key'),
  MARGAY_S3_SECRET_ACCESS_KEY: z.string().optional().describe('the access key'),
};

export const BlobConfig = z.object(BLOB_SETTINGS);
export type BlobConfig = z.infer<typeof BlobConfig>;

export interface S3Settings {
  bucket: string;
  region: string;
  endpoint?: string | undefined;
  isPathStyle: boolean;
  credentials: { accessKeyId: string; secretAccessKey: string };
}

/** Undefined with GridFS. @throws InvalidArgumentError `bad_environment` naming what is missing */
export function s3SettingsOf(config: BlobConfig): S3Settings | undefined {
  if (config.MARGAY_BLOB_DRIVER === 'gridfs') return undefined;
  const endpoint = config.MARGAY_S3_ENDPOINT;
  return {
    bucket: demanded(config, 'MARGAY_S3_BUCKET'),
    region: config.MARGAY_S3_REGION,
    endpoint,
    isPathStyle: config.MARGAY_S3_PATH_STYLE ?? endpoint !== undefined,
    credentials: {
      accessKeyId: demanded(config, 'MARGAY_S3_ACCESS_KEY_ID'),
      secretAccessKey: demanded(config, 'MARGAY_S3_SECRET_ACCESS_KEY'),
    },
  };
}

function demanded(
  config: BlobConfig,
  name: 'MARGAY_S3_BUCKET' | 'MARGAY_S3_ACCESS_KEY_ID' | 'MARGAY_S3_SECRET_ACCESS_KEY',
) {
  const value = config[name];
  if (value !== undefined) return value;
  const orFile = name === 'MARGAY_S3_BUCKET' ? name : `${name} or ${name}_FILE`;
  throw new InvalidArgumentError('bad_environment', `Cannot start: the blob driver "s3" needs ${orFile}.`);
}
