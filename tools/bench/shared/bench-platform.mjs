// Margay's real processes, as npm start and the end-to-end tests start them, on servers and a model of the bench.
import { randomBytes } from 'node:crypto';
import { chmod, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { MargayClient } from '../../../libs/client/dist/index.js';
import { startPlatform } from '../../../libs/launcher/dist/index.js';
import { root } from '../../prepare.mjs';

/**
 * `{ platform, client, pids, newWorkspace(), stop() }`; `pids` names our processes only.
 * The rate limit is out of the way: it is no cost, and one client stands for many here.
 */
export async function startBenchPlatform({
  directory,
  closing,
  servers,
  model,
  mode = 'combined',
  runners = 1,
  env,
  ...bundles
}) {
  const home = join(directory, `home-${randomBytes(3).toString('hex')}`);
  const platform = await startPlatform({
    mode,
    runners,
    home,
    nats: servers.nats,
    store: servers.store,
    database: servers.database,
    entry: join(root, 'dist/margay.cjs'),
    sandboxdEntry: join(root, 'dist/sandboxd.cjs'),
    ...bundles,
    env: {
      OPENAI_BASE_URL: model.baseUrl,
      OPENAI_API_KEY: 'bench',
      MARGAY_MODEL: 'r1p1',
      MARGAY_ALLOW_EXTERNAL_CWD: 'true',
      MARGAY_RATE_LIMIT_PER_SECOND: '100000',
      MARGAY_RATE_LIMIT_BURST: '100000',
      ...env,
    },
  });
  closing.add(() => platform.stop());
  return {
    platform,
    home,
    client: new MargayClient({ baseUrl: platform.gatewayUrl, apiKey: platform.apiKey }),
    pids: Object.fromEntries(platform.processes.map(({ name, pid }) => [name, pid])),
    newWorkspace: () => newWorkspace(join(home, 'workspaces')),
    stop: () => platform.stop(),
  };
}

/** A folder below the home, whose owner the tool-executor may change, with the file that the bench model asks for. */
async function newWorkspace(parent) {
  const folder = join(parent, randomBytes(6).toString('hex'));
  await mkdir(folder, { recursive: true });
  await chmod(parent, 0o711);
  await writeFile(join(folder, 'README.md'), 'x'.repeat(32));
  return folder;
}
