import { askGit, type GitPlace } from './git';

export interface Remote {
  host: string;
  owner: string;
  name: string;
}

const NONE: Remote = { host: '', owner: '', name: '' };
/** `git@host:owner/name.git` */
const SHORT = /^(?:[^@/]+@)?([^:/]+):(?!\/\/)(.+)$/;
const PART = /^[\w.~-]{1,100}$/;
const SCHEMES = new Set(['http:', 'https:', 'ssh:', 'git:']);

/** Where the repository is shared with others: its `origin`, else its first remote. */
export async function remoteOf(place: GitPlace): Promise<Remote> {
  const named = ((await askGit(place, ['remote'])) ?? '').split('\n').filter((name) => name !== '');
  const name = named.includes('origin') ? 'origin' : named[0];
  if (name === undefined) return NONE;
  return parseRemote(((await askGit(place, ['config', '--get', `remote.${name}.url`])) ?? '').trim());
}

/** Host, owner and name in the address of a repository, without credentials; all empty where it has no such form. */
export function parseRemote(address: string): Remote {
  const [host = '', path = ''] = placeOf(address);
  const parts = path.replace(/\.git\/?$/, '').split('/').filter((part) => part !== ''); // prettier-ignore
  const name = parts.pop() ?? '';
  const isKnown = host !== '' && parts.length > 0 && [host, name, ...parts].every((part) => PART.test(part));
  return isKnown ? { host: host.toLowerCase(), owner: parts.join('/'), name } : NONE;
}

function placeOf(address: string): [host?: string, path?: string] {
  if (URL.canParse(address)) {
    const { protocol, hostname, pathname } = new URL(address);
    if (SCHEMES.has(protocol)) return [hostname, pathname];
  }
  const [, host, path] = SHORT.exec(address) ?? [];
  return host === undefined || address.includes('://') ? [] : [host, path ?? ''];
}
