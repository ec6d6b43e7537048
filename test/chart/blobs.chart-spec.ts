import { outerEdges } from './edges';
import { containersOf, EVALUATION, find, notes, podsOf, readChartYaml, refusal, render } from './render';

interface Blobs {
  driver?: string;
  s3?: Record<string, string>;
}
const SET = readChartYaml('ci/blobs.yaml') as { blobs: Blobs; networkPolicy: object };
const withS3 = (s3: Record<string, string>) => ({ ...SET, blobs: { ...SET.blobs, s3: { ...SET.blobs.s3, ...s3 } } });

/** Names of pods that mount the access key. */
const holders = (values: object): string[] =>
  podsOf(render(values))
    .filter(({ spec }) => JSON.stringify(spec).includes('"secretName":"bucket-key"'))
    .map(({ owner }) => `${owner.kind} ${owner.metadata.name}`)
    .sort();
/** Who may leave for the bucket. */
const callers = (values: object): string[] =>
  outerEdges(render(values)).filter((edge) => edge.includes('203.0.113.32/28'));

describe('a bucket for blobs', () => {
  it('is known to those alone who read and write it', () => {
    const those = ['CronJob margay-backup', 'Deployment margay-session', 'Deployment margay-tool-executor'];
    expect(holders(SET)).toEqual(those);
    expect(holders({ ...SET, mode: 'combined' })).toEqual(['CronJob margay-backup', 'Deployment margay-control']);
    expect(holders({ ...SET, backup: {} })).toEqual(those.slice(1));
    const inEnvironment = podsOf(render(SET)).filter((pod) => JSON.stringify(containersOf(pod)).includes('MARGAY_S3_'));
    expect(inEnvironment.map(({ owner }) => `${owner.kind} ${owner.metadata.name}`).sort()).toEqual(those);
  });

  it('is reached by them alone', () => {
    const ends = ['margay-backup', 'margay-session', 'margay-tool-executor'].flatMap((name) =>
      [443, 9000].map((port) => `${name} → 203.0.113.32/28:${port}`),
    );
    expect(callers(SET).sort()).toEqual(ends);
    expect(callers({ ...SET, backup: {} }).sort()).toEqual(ends.slice(2));
  });

  it('shows its key in no environment', () => {
    for (const name of ['margay-session', 'margay-tool-executor']) {
      const container = find(render(SET), 'Deployment', name).spec.template.spec.containers[0];
      const named = container.env.filter((variable: { name: string }) => /^MARGAY_(S3|BLOB)_/.test(variable.name));
      expect(named).toEqual([
        { name: 'MARGAY_BLOB_DRIVER', value: 's3' },
        { name: 'MARGAY_S3_ENDPOINT', value: 'https://s3.example.com' },
        { name: 'MARGAY_S3_BUCKET', value: 'margay' },
        { name: 'MARGAY_S3_REGION', value: 'house' },
        { name: 'MARGAY_S3_ACCESS_KEY_ID_FILE', value: '/margay/blobs/access-key-id' },
        { name: 'MARGAY_S3_SECRET_ACCESS_KEY_FILE', value: '/margay/blobs/secret-access-key' },
      ]);
      expect(container.volumeMounts).toContainEqual({ name: 'blobs', mountPath: '/margay/blobs', readOnly: true });
    }
  });

  it.each([
    ['auto', undefined],
    ['always', 'true'],
    ['never', 'false'],
  ])('of path style %s is told so', (pathStyle, value) => {
    const { env } = find(render(withS3({ pathStyle })), 'Deployment', 'margay-session').spec.template.spec
      .containers[0];
    const told = env.find(({ name }: { name: string }) => name === 'MARGAY_S3_PATH_STYLE');
    expect(told?.value).toBe(value);
  });

  it('needs no endpoint at Amazon', () => {
    const session = find(render(withS3({ endpoint: '' })), 'Deployment', 'margay-session');
    expect(JSON.stringify(session)).not.toContain('MARGAY_S3_ENDPOINT');
  });

  it('is left alone by other jobs on the store', () => {
    const migrate = JSON.stringify(find(render(SET), 'Job', 'margay-migrate'));
    expect(migrate).not.toContain('bucket-key');
    const restoring = { ...SET, restore: { enabled: true } };
    expect(holders(restoring)).not.toContain('Job margay-restore-1');
  });

  it('leaves no trace with GridFS', () => {
    expect(JSON.stringify(render(EVALUATION))).not.toMatch(/MARGAY_(S3|BLOB)_|\/margay\/blobs/);
  });

  it.each([
    ['no name', withS3({ bucket: '' }), 'blobs.s3.bucket: missing with blobs.driver s3; set it'],
    [
      'no key',
      withS3({ existingSecret: '' }),
      'blobs.s3.existingSecret: missing with blobs.driver s3; set it to a secret',
    ],
    [
      'no way to it',
      { ...SET, networkPolicy: {} },
      'networkPolicy.blobsTo: empty, so nothing reaches the bucket; set peers',
    ],
    [
      'no driver',
      { ...SET, blobs: { ...SET.blobs, driver: 'gridfs' } },
      'blobs.s3: not used with blobs.driver gridfs; set',
    ],
    ['another driver', { ...SET, blobs: { driver: 'files' } }, '/blobs/driver'],
    ['an endpoint that is none', withS3({ endpoint: 's3.example.com' }), 'endpoint'],
  ])('with %s is refused', (_, values, message) => {
    expect(refusal(values)).toContain(message);
  });

  it('is told how to be kept clean, and that its bytes are in the clear', () => {
    expect(notes(SET)).toContain('aborts incomplete multipart uploads');
    expect(notes(SET)).not.toContain('in the clear');
    expect(notes(withS3({ endpoint: 'http://s3.example.com' }))).toContain(
      'bytes travel to http://s3.example.com in the clear',
    );
    expect(notes(EVALUATION)).not.toContain('multipart');
  });

  it('takes larger archives than the store', () => {
    const classes = (workspace: string) => ({ default: { storage: 'snapshot', workspace } });
    expect(notes({ ...EVALUATION, sandbox: { classes: classes('1Gi') } })).toContain(
      'with blobs.driver s3 it may have 2 GiB',
    );
    expect(notes({ ...SET, sandbox: { classes: classes('1Gi') } })).not.toContain('outlive');
    expect(notes({ ...SET, sandbox: { classes: classes('4Gi') } })).toContain('fits into 2048 MiB');
  });
});
