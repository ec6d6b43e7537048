import { isAmbiguous } from '../policy/path-pattern';

const PUSH = 'git-receive-pack';
/** What follows the address of a repository in its requests. */
const SERVICE = /\/(info\/refs|info\/lfs(\/.*)?|git-upload-pack|git-receive-pack|HEAD|objects\/.*)$/;
/** More than any server undoes. */
const MAX_DECODED = 4;

/** Whether git pushes by this request, however it is spelled. */
export function isPush(resource: string): boolean {
  let text = resource;
  for (let times = 0; times < MAX_DECODED; times += 1) {
    if (text.toLowerCase().includes(PUSH)) return true;
    text = text.replace(/%[0-9a-f]{2}/gi, (encoded) => String.fromCharCode(parseInt(encoded.slice(1), 16)));
  }
  return text.toLowerCase().includes(PUSH);
}

/**
 * Path of the repository that a request is about, without slashes around it; empty where servers might take it for
 * another one: then only an account of the whole host is for it.
 */
export function repositoryOf(path: string): string {
  if (isAmbiguous(path)) return '';
  return path.replace(SERVICE, '').replace(/^\/+|\/+$/g, '').replace(/\.git$/, ''); // prettier-ignore
}
