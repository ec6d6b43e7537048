// Builds the daemon as one file that needs nothing beside Node: node services/sandboxd/bundle.mjs [output]
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const here = (name) => fileURLToPath(new URL(name, import.meta.url));

export async function bundleSandboxd(outfile = here('dist/sandboxd.cjs')) {
  await build({
    entryPoints: [here('src/main.ts')],
    outfile,
    bundle: true,
    platform: 'node',
    target: 'node20',
    format: 'cjs',
    keepNames: true,
    minifySyntax: true,
    conditions: ['@margay/source'],
    legalComments: 'none',
    logLevel: 'error',
    define: { 'import.meta.url': '__bundleUrl' },
    banner: { js: "const __bundleUrl = require('node:url').pathToFileURL(__filename).href;" },
  });
  return outfile;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await bundleSandboxd(process.argv[2]);
