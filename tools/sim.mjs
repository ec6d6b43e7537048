// `npm run test:sim -- --seeds 1-5000`: plays the session log against seeded faults; `--help` lists the options.
import { spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { root, runCommand, SIGNALS } from './prepare.mjs';

await runCommand(import.meta.url, main);

async function main() {
  const directory = await mkdtemp(join(tmpdir(), 'margay-sim-'));
  try {
    const bundle = join(directory, 'sim.cjs');
    await bundleSimulator(bundle);
    const child = spawn(process.execPath, ['--enable-source-maps', bundle, ...process.argv.slice(2)], { stdio: 'inherit' }); // prettier-ignore
    for (const signal of SIGNALS) process.once(signal, () => child.kill(signal));
    return await new Promise((resolve) => child.once('exit', (code) => resolve(code ?? 130)));
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

/** From the TypeScript sources, so that nothing needs to be compiled first. */
async function bundleSimulator(outfile) {
  const { build } = await import('esbuild');
  await build({
    entryPoints: [join(root, 'test/sim/cli.ts')],
    outfile,
    bundle: true,
    platform: 'node',
    target: 'node24',
    format: 'cjs',
    conditions: ['@margay/source'],
    sourcemap: 'inline',
    logLevel: 'warning',
    absWorkingDir: root,
  });
}
