import { isIP } from 'node:net';
import { domainToASCII } from 'node:url';
import { PermissionDeniedError } from '@margay/errors';

const MAX_LENGTH = 253;
/** Labels of letters, digits, hyphens and underscores; the last one is no number, or it would be an address. */
const NAME = /^(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?$/;

/** The one spelling of a host's name: small letters, punycode, no dot at the end; undefined for anything else. */
export function normalHostName(text: string): string | undefined {
  const ascii = domainToASCII(text.replace(/\.$/, '')).toLowerCase();
  return ascii.length <= MAX_LENGTH && NAME.test(ascii) && isIP(ascii) === 0 ? ascii : undefined;
}

/**
 * The host somebody asks for. Addresses are refused in every spelling (decimal, octal, hexadecimal, mapped), so that
 * what a rule says about names holds.
 */
export function requestedHostName(text: string): string {
  const name = /^[\p{L}\p{N}._-]+$/u.test(text) ? normalHostName(text) : undefined;
  if (name !== undefined) return name;
  throw new PermissionDeniedError(
    'egress_denied',
    'Only names of hosts are served, neither addresses nor other words.',
  );
}

/** `*.example.com` stands for every name below example.com, at any depth, but not for example.com. */
export function isHostPattern(text: string): boolean {
  const name = text.startsWith('*.') ? text.slice(2) : text;
  return normalHostName(name) === name;
}

export function matchesHost(pattern: string, host: string): boolean {
  return pattern.startsWith('*.') ? host.endsWith(pattern.slice(1)) : host === pattern;
}
