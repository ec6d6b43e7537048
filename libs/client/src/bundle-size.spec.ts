import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { build } from 'esbuild';

const MAX_GZIP_BYTES = 12 * 1024;

it('is at most 12 kB minified and gzipped for browsers, without zod or anything of Node', async () => {
  const { outputFiles, metafile } = await build({
    entryPoints: [join(__dirname, 'index.ts')],
    bundle: true,
    minify: true,
    write: false,
    metafile: true,
    format: 'esm',
    platform: 'browser',
    target: ['chrome111', 'firefox114', 'safari16.4'],
    conditions: ['@margay/source'],
  });
  const bytes = gzipSync(outputFiles[0]?.contents ?? '').length;
  process.stdout.write(`@margay/client core: ${bytes} bytes of ${MAX_GZIP_BYTES} (minified, gzip)\n`);
  const foreign = Object.keys(metafile.inputs).filter(
    (path) => !/libs\/(client|errors)\/src|eventsource-parser/.test(path),
  );
  expect(foreign).toEqual([]);
  expect(bytes).toBeGreaterThan(1000);
  expect(bytes).toBeLessThanOrEqual(MAX_GZIP_BYTES);
});
