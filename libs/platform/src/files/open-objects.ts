import { s3SettingsOf, type BlobConfig } from './blob-config';
import { S3Objects, type S3Library } from './s3-objects';

const CONNECT_TIMEOUT_MS = 5_000;
/** Of a connection on which nothing moves: a slow reader holds up what he reads. */
const IDLE_TIMEOUT_MS = 120_000;
const ATTEMPTS = 4;
const SOCKETS = 50;

/** The bucket that the environment names; undefined with GridFS. @throws InvalidArgumentError `bad_environment` */
export async function openObjects(config: BlobConfig): Promise<S3Objects | undefined> {
  const settings = s3SettingsOf(config);
  if (!settings) return undefined;
  const library: S3Library = {
    s3: await import('@aws-sdk/client-s3'),
    storage: await import('@aws-sdk/lib-storage'),
  };
  const client = new library.s3.S3Client({
    region: settings.region,
    ...(settings.endpoint !== undefined && { endpoint: settings.endpoint }),
    forcePathStyle: settings.isPathStyle,
    credentials: settings.credentials,
    maxAttempts: ATTEMPTS,
    // Bodies are signed with their SHA-256, which every server compares; not every one knows further checksums.
    requestChecksumCalculation: 'WHEN_REQUIRED',
    responseChecksumValidation: 'WHEN_REQUIRED',
    requestHandler: {
      connectionTimeout: CONNECT_TIMEOUT_MS,
      socketTimeout: IDLE_TIMEOUT_MS,
      httpAgent: { keepAlive: true, maxSockets: SOCKETS },
      httpsAgent: { keepAlive: true, maxSockets: SOCKETS },
    },
  });
  return new S3Objects(library, client, settings.bucket, settings.endpoint);
}
