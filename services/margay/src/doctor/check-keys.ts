import { createPrivateKey, createPublicKey } from 'node:crypto';
import { readdir, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { Trust } from '@margay/platform';
import { fault, ok, reasonOf, warning, type Finding } from './finding';

const KEY_FILE = /^(.+)\.key\.pem$/;
const READABLE_BY_ANYBODY = 0o004;

/** The keys that services sign with: each readable, trusted by the others, and nobody else's to read. */
export async function checkKeys(directory: string | undefined): Promise<Finding[]> {
  if (directory === undefined) return [warning('keys.trust', 'no keys are named', 'set MARGAY_KEYS_DIR')];
  try {
    const trust = Trust.parse(JSON.parse(await readFile(join(directory, 'trust.json'), 'utf8')));
    const services = (await readdir(directory)).flatMap((name) => KEY_FILE.exec(name)?.[1] ?? []);
    const findings = await Promise.all(services.map((service) => checkKey(directory, service, trust)));
    const wrong = findings.filter(({ status }) => status !== 'ok');
    if (services.length === 0) return [warning('keys.trust', `${directory} holds no key`, 'run margay.cjs bootstrap')];
    return wrong.length > 0 ? wrong : [ok('keys.trust', `${services.length} keys, each trusted by the others`)];
  } catch (error) {
    const fix = 'mount the secret of the keys there, or make them: margay.cjs bootstrap (npm start does it by itself)';
    return [fault('keys.trust', `trust.json in ${directory} is not readable: ${reasonOf(error)}`, fix)];
  }
}

async function checkKey(directory: string, service: string, trust: Trust): Promise<Finding> {
  const path = join(directory, `${service}.key.pem`);
  try {
    const publicKey = createPublicKey(createPrivateKey(await readFile(path, 'utf8')));
    const pem = publicKey.export({ type: 'spki', format: 'pem' }).toString();
    if (!trust[service]?.some((trusted) => trusted.trim() === pem.trim()))
      return fault('keys.trust', `trust.json does not list the key of ${service}`, 'run margay.cjs bootstrap and restart the services'); // prettier-ignore
    if ((await stat(path)).mode & READABLE_BY_ANYBODY)
      return warning('keys.mode', `anybody may read ${path}`, `chmod o-rwx ${path}`);
    return ok('keys.trust', service);
  } catch (error) {
    return fault('keys.trust', `the key of ${service} is not readable: ${reasonOf(error)}`, `look at ${path}; bootstrap makes a missing one`); // prettier-ignore
  }
}
