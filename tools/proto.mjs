// `npm run proto`: lint the contracts and generate their code.
//   --check    change nothing: fail if the committed code is not what the contracts give, or a released promise is broken
//   --release  record the present contracts as released (proto/released.txt)
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { brokenPromises, contractLines } from './proto/contract-text.ts';

const root = fileURLToPath(new URL('..', import.meta.url));
const generated = 'libs/contracts/src/gen';
const released = join(root, 'proto/released.txt');
const MAX_DESCRIPTOR_BYTES = 64 * 1024 * 1024;

function buf(...args) {
  const { status, error, stdout } = spawnSync(process.execPath, [join(root, 'node_modules/.bin/buf'), ...args], {
    cwd: root,
    encoding: 'utf8',
    maxBuffer: MAX_DESCRIPTOR_BYTES,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  if (error) throw error;
  if (status === 0) return stdout;
  process.stderr.write(stdout);
  throw new Error(`buf ${args[0]} failed`);
}

const presentLines = () => contractLines(JSON.parse(buf('build', '-o', '-#format=json', '--exclude-source-info')));

async function checkReleased() {
  if (!existsSync(released)) return say('nothing is released yet, so nothing can be broken');
  const lines = (await readFile(released, 'utf8')).split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  const broken = brokenPromises(lines, presentLines());
  if (broken.length === 0) return;
  const advice =
    'Add beside the old and keep it, or make a new package version; after a release: npm run proto -- --release';
  throw new Error(`contracts that were released are broken:\n${broken.join('\n')}\n${advice}`);
}

async function checkGenerated() {
  const fresh = await mkdtemp(join(tmpdir(), 'margay-proto-'));
  try {
    buf('generate', '-o', fresh);
    const [expected, committed] = await Promise.all([textsIn(join(fresh, generated)), textsIn(join(root, generated))]);
    const names = [...new Set([...expected.keys(), ...committed.keys()])].sort();
    const stale = names.filter((name) => expected.get(name) !== committed.get(name));
    if (stale.length > 0) throw new Error(`generated code is stale, run npm run proto:\n${stale.join('\n')}`);
  } finally {
    await rm(fresh, { recursive: true });
  }
}

async function textsIn(folder) {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
  return new Map(
    await Promise.all(files.map(async (file) => [file.slice(folder.length + 1), await readFile(file, 'utf8')])),
  );
}

async function release() {
  const head = '# What released versions of Margay promise to each other. Written by: npm run proto -- --release';
  await writeFile(released, `${[head, ...presentLines()].join('\n')}\n`);
}

const say = (line) => process.stdout.write(`proto: ${line}\n`);

async function main([mode]) {
  buf('lint');
  if (mode === '--check') {
    const results = await Promise.allSettled([checkGenerated(), checkReleased()]);
    const failures = results.flatMap(({ reason }) => (reason ? [reason.message] : []));
    if (failures.length > 0) throw new Error(failures.join('\n'));
    return say('generated code is fresh and no released promise is broken');
  }
  if (mode === '--release') {
    await release();
    return say('proto/released.txt records the present contracts');
  }
  if (mode !== undefined) throw new Error(`there is no option ${mode}; there are --check and --release`);
  buf('generate');
  await checkReleased();
  say(`${generated} is generated`);
}

main(process.argv.slice(2)).catch((error) => {
  process.stderr.write(`proto: ${error.message}\n`);
  process.exitCode = 1;
});
