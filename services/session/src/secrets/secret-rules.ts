import type { Principal, secretsPb } from '@margay/contracts';
import { InvalidArgumentError, PermissionDeniedError } from '@margay/errors';
import { isGranted, isManager } from '../access/access-rules';
import { TENANT_OWNER, type GitAccountRow, type SecretRow } from './secret.repository';

const VALUE_MAX_BYTES = 32 * 1024;
export const SECRETS_MAX = 200;
/** Of one member: the lowest roles must not use up what the tenant has. */
export const PERSONAL_MAX = 50;
const USES_MAX = 16;
const HOSTS_MAX = 64;

const NAME = /^[\w.-]{1,64}(\/[\w.-]{1,64})?$/;
const USE = /^(egress|git|hook|mail|search|(provider|mcp|channel):[\w.-]{1,64})$/;
const HOST = /^(\*\.)?[a-z0-9](-*[a-z0-9])*(\.[a-z0-9](-*[a-z0-9])*)*$/;
const PATH = /^[\w.~-]+(\/[\w.~-]+)*$/;
const USERNAME = /^[\x21-\x39\x3b-\x7e]{1,128}$/;
const CONTROL = /[\x00-\x1f\x7f]/; // eslint-disable-line no-control-regex -- what would break out of a header
/** Uses for which a value is sent to some host. */
const SENT = new Set(['egress', 'git']);

export type SecretScope = 'tenant' | 'personal';

export interface SecretTerms {
  kind: SecretRow['kind'];
  uses: string[];
  hosts: string[];
  git?: GitAccountRow;
  expiresAt?: Date;
}

/** @throws InvalidArgumentError `validation` */
export function scopeOf(text: string): SecretScope {
  if (text === 'tenant' || text === 'personal') return text;
  throw unusable('scope', `is 'tenant' or 'personal'`);
}

/**
 * Whose secrets a principal means, if it may manage them.
 * @throws PermissionDeniedError `permission_denied`
 */
export function ownerFor(principal: Principal, scope: SecretScope): string {
  const needed = scope === 'personal' ? 'personal.manage' : 'secrets.manage';
  const isRole = scope === 'personal' ? principal.role !== 'viewer' : isManager(principal);
  if (!isRole || !isGranted(principal, needed) || principal.principal.startsWith('system:'))
    throw new PermissionDeniedError('permission_denied', `this needs the scope ${needed}`, {
      details: { scope: needed },
    });
  return scope === 'tenant' ? TENANT_OWNER : principal.principal;
}

/** @throws InvalidArgumentError `validation`, which never quotes the value */
export function termsOf(request: secretsPb.PutSecretRequest, now: number): SecretTerms {
  checkName(request.name);
  const kind = request.kind === '' ? 'opaque' : request.kind;
  if (kind !== 'opaque' && kind !== 'git') throw unusable('kind', `is 'opaque' or 'git'`);
  const uses = usesOf(request.uses, kind);
  const hosts = hostsOf(request.hosts);
  const git = gitOf(request.git, kind);
  checkValue(request.value, uses);
  if (!git && hosts.length === 0 && uses.some((use) => SENT.has(use)))
    throw unusable('hosts', 'must name the hosts that it may be sent to');
  const { expiresAt } = request;
  if (expiresAt && !(expiresAt.getTime() > now)) throw unusable('expires_at', 'must be a time to come');
  return { kind, uses, hosts, ...(git && { git }), ...(expiresAt && { expiresAt }) };
}

/** @throws InvalidArgumentError `validation` */
export function checkName(name: string): void {
  if (!NAME.test(name))
    throw unusable(
      'name',
      'is up to 64 letters, digits, dots, hyphens and underscores, or two such parts with a slash',
    );
}

/** Whether a name is one of these, or below one that begins with `*.`. */
export function covers(hosts: readonly string[], host: string): boolean {
  const name = host.toLowerCase();
  return hosts.some((rule) => (rule.startsWith('*.') ? name.endsWith(rule.slice(1)) : name === rule));
}

/** Whether a path lies at or below a prefix, by whole steps. */
export function isBelow(prefix: string, path: string): boolean {
  return prefix === '' || path === prefix || path.startsWith(`${prefix}/`);
}

function checkValue(value: string, uses: readonly string[]): void {
  const bytes = Buffer.byteLength(value);
  if (bytes === 0 || bytes > VALUE_MAX_BYTES) throw unusable('value', `must have 1 to ${VALUE_MAX_BYTES} bytes`);
  if (uses.some((use) => SENT.has(use)) && CONTROL.test(value))
    throw unusable('value', 'must hold no line breaks or other control characters where it is sent to hosts');
}

function usesOf(named: readonly string[], kind: SecretRow['kind']): string[] {
  const uses = [...new Set(named.length === 0 && kind === 'git' ? ['git'] : named)];
  if (uses.length === 0 || uses.length > USES_MAX) throw unusable('uses', `must name 1 to ${USES_MAX} uses`);
  if (!uses.every((use) => USE.test(use)))
    throw unusable('uses', 'are egress, git, hook, mail, search, provider:<name>, mcp:<name> and channel:<name>');
  return uses;
}

function hostsOf(named: readonly string[]): string[] {
  const hosts = [...new Set(named.map((host) => host.toLowerCase()))];
  if (hosts.length > HOSTS_MAX) throw unusable('hosts', `must name at most ${HOSTS_MAX} hosts`);
  if (!hosts.every((host) => HOST.test(host) && host.length <= 253))
    throw unusable('hosts', `are names, or '*.' and a name: no addresses, ports or paths`);
  return hosts;
}

function gitOf(account: secretsPb.GitAccount | undefined, kind: SecretRow['kind']): GitAccountRow | undefined {
  if (kind !== 'git') {
    if (account) throw unusable('git', `goes with the kind 'git'`);
    return undefined;
  }
  const [host = ''] = hostsOf(account ? [account.host] : []);
  if (host === '' || host.startsWith('*.')) throw unusable('git.host', 'must name the host of the repositories');
  const pathPrefix = (account?.pathPrefix ?? '').replace(/^\/|\/$/g, '');
  const steps = pathPrefix.split('/');
  if (pathPrefix !== '' && (!PATH.test(pathPrefix) || steps.includes('..') || steps.includes('.')))
    throw unusable('git.path_prefix', 'must be the beginning of a path, such as team or team/site');
  const username = account?.username === '' || !account ? 'git' : account.username;
  if (!USERNAME.test(username)) throw unusable('git.username', 'must be visible ASCII without a colon');
  return { host, pathPrefix, username };
}

function unusable(field: string, what: string) {
  return new InvalidArgumentError('validation', `Invalid input: '${field}' ${what}`);
}
