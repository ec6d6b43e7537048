import {
  EGRESS_MODES,
  matchesHost,
  type EgressCaller,
  type EgressInjection,
  type EgressMode,
  type EgressPolicy,
  type EgressRule,
} from '@margay/contracts';
import { isAmbiguous, matchesPathPattern } from './path-pattern';

/** What somebody wants to reach. */
export interface Target {
  host: string;
  port: number;
  /** Of a request that can be read; an encrypted one has neither. */
  request?: { method: string; path: string };
  /** Whether the request goes to the host over TLS: it was read in an intercepted tunnel. */
  isEncrypted?: boolean;
}

export interface Permission {
  isAllowed: true;
  rule: string;
  /** Of a tunnel: the requests in it are to be read. */
  intercept: boolean;
  /** No rule named it: what the operator excepted is not meant. */
  isPublicOnly?: boolean;
  inject?: EgressInjection;
}

export interface Refused {
  isAllowed: false;
  rule?: string;
  why: 'mode_none' | 'no_rule' | 'unreadable' | 'needs_encryption' | 'credential' | 'push';
}

export type Verdict = Permission | Refused;

/** The name that `public` goes by where no rule matches. */
export const PUBLIC_RULE = 'public';
const HTTP_PORT = 80;

/** The first rule that matches decides; without one nothing is allowed, unless everything public is. */
export function judge(policy: EgressPolicy, maxMode: EgressMode, target: Target, caller: EgressCaller): Verdict {
  const mode = narrower(policy.mode, maxMode);
  if (mode === 'none') return { isAllowed: false, why: 'mode_none' };
  const rule = policy.rules.find((candidate) => concerns(candidate, target, caller));
  if (rule) return permissionOf(rule, target);
  const isNamed = policy.rules.some((candidate) => isFor(candidate, caller) && names(candidate, target));
  if (isNamed || mode !== 'public' || !isUsual(target)) return { isAllowed: false, why: 'no_rule' };
  return { isAllowed: true, rule: PUBLIC_RULE, intercept: false, isPublicOnly: true };
}

function permissionOf({ id, intercept, inject }: EgressRule, { request, isEncrypted }: Target): Verdict {
  // Whether a tunnel's requests match is seen when they come; until then a later, laxer rule must not decide instead.
  if (!request) return { isAllowed: true, rule: id, intercept };
  if (!inject) return { isAllowed: true, rule: id, intercept: false };
  if (!isEncrypted) return { isAllowed: false, rule: id, why: 'needs_encryption' };
  return { isAllowed: true, rule: id, intercept: false, inject };
}

/** Requests in the clear could pass for another protocol at its port; tunnels cannot, since they begin with TLS. */
function isUsual({ port, request, isEncrypted }: Target): boolean {
  return !request || isEncrypted === true || port === HTTP_PORT;
}

export function narrower(one: EgressMode, other: EgressMode): EgressMode {
  return EGRESS_MODES.indexOf(one) < EGRESS_MODES.indexOf(other) ? one : other;
}

const names = ({ hosts }: EgressRule, { host }: Target): boolean => hosts.some((pattern) => matchesHost(pattern, host));

/** Whether a rule is meant for this caller's project and class. */
export function isFor({ projects, classes }: EgressRule, { projectId = '', sandboxClass = '' }: EgressCaller): boolean {
  return (!projects || projects.includes(projectId)) && (!classes || classes.includes(sandboxClass));
}

function concerns(rule: EgressRule, target: Target, caller: EgressCaller): boolean {
  const { port, request } = target;
  if (!rule.ports.includes(port) || !names(rule, target) || !isFor(rule, caller)) return false;
  if (!request) return true;
  if (rule.methods && !rule.methods.includes(request.method)) return false;
  return !rule.paths || matchesPath(rule.paths, request.path);
}

function matchesPath(patterns: readonly string[], path: string): boolean {
  return !isAmbiguous(path) && patterns.some((pattern) => matchesPathPattern(pattern, path));
}
