/** A bucket of a real server that a stage of its own started for the suite of the object store, see tools/test-s3.mjs. */
export interface RealBucket {
  endpoint: string;
  bucket: string;
  accessKeyId: string;
  secretAccessKey: string;
}

/** Undefined where nobody started one. */
export function realBucket(environment: NodeJS.ProcessEnv = process.env): RealBucket | undefined {
  const text = environment.MARGAY_TEST_BUCKET;
  return text ? (JSON.parse(text) as RealBucket) : undefined;
}
