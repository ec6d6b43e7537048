// `npm run test:faults -- --kills 60 --seed 1`: kills, stops and restarts real processes at random; `--help` lists the options.
import { spawn } from 'node:child_process';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { progress, root, runCommand, SIGNALS } from './prepare.mjs';

await runCommand(import.meta.url, main);

async function main() {
  const { build } = await import('./build.mjs');
  await build(progress);
  // Two folders below the root, as the harness is: it looks for the platform's bundles from there.
  const bundle = join(root, 'test/out-tsc', `faults-${process.pid}.cjs`);
  try {
    await bundleFaults(bundle);
    const child = spawn(process.execPath, ['--enable-source-maps', bundle, ...process.argv.slice(2)], { stdio: 'inherit' }); // prettier-ignore
    for (const signal of SIGNALS) process.once(signal, () => child.kill(signal));
    return await new Promise((resolve) => child.once('exit', (code) => resolve(code ?? 130)));
  } finally {
    await rm(bundle, { force: true });
  }
}

/** From the TypeScript sources; packages of others are loaded where they lie. */
async function bundleFaults(outfile) {
  const { build } = await import('esbuild');
  const external = {
    name: 'packages of others stay outside',
    setup: ({ onResolve }) =>
      onResolve({ filter: /^[^./]/ }, ({ path, kind }) =>
        kind === 'entry-point' || path.startsWith('@margay/') ? undefined : { path, external: true },
      ),
  };
  await build({
    entryPoints: [join(root, 'test/faults/cli.ts')],
    outfile,
    bundle: true,
    platform: 'node',
    target: 'node24',
    format: 'cjs',
    keepNames: true,
    conditions: ['@margay/source'],
    plugins: [external],
    sourcemap: 'inline',
    logLevel: 'warning',
    absWorkingDir: root,
  });
}
