import { isIP } from 'node:net';
import { domainToASCII } from 'node:url';
import { isHostName } from '@margay/contracts';
import { PermissionDeniedError } from '@margay/errors';

/** The one spelling of a host's name: small letters, punycode, no dot at the end; undefined for anything else. */
export function normalHostName(text: string): string | undefined {
  const ascii = domainToASCII(text.replace(/\.$/, '')).toLowerCase();
  return isHostName(ascii) && isIP(ascii) === 0 ? ascii : undefined;
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
