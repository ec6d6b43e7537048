import { isMargayError } from '@margay/errors';

export type FindingStatus = 'ok' | 'warning' | 'fault';

/** What one check of the doctor says. */
export interface Finding {
  /** `<area>.<what>`, stable. */
  check: string;
  status: FindingStatus;
  detail: string;
  /** What to do; absent where all is well. */
  fix?: string;
}

export const ok = (check: string, detail: string): Finding => ({ check, status: 'ok', detail });
export const warning = (check: string, detail: string, fix: string): Finding => ({ check, status: 'warning', detail, fix }); // prettier-ignore
export const fault = (check: string, detail: string, fix: string): Finding => ({ check, status: 'fault', detail, fix });

/** Texts of foreign errors may hold addresses with passwords, so of those only the name is shown. */
export function reasonOf(error: unknown): string {
  if (isMargayError(error)) return error.message;
  const { name = 'an unknown error', code } = (error ?? {}) as { name?: string; code?: unknown };
  return typeof code === 'string' || typeof code === 'number' ? `${name} ${code}` : name;
}

/** 0: all is well; 1: warnings; 2: faults. */
export function exitCodeOf(findings: readonly Finding[]): 0 | 1 | 2 {
  if (findings.some(({ status }) => status === 'fault')) return 2;
  return findings.some(({ status }) => status === 'warning') ? 1 : 0;
}
