import { subjects } from '@margay/contracts';
import { KeyRing, type Logger, type NatsBus, type ServiceShared } from '@margay/platform';
import { DenialNotes } from './audit/denial-notes';
import type { EgressRecord } from './audit/egress-record';
import type { EgressConfig } from './config';
import { CachedCredentials } from './inject/cached-credentials';
import { SessionCredentials } from './inject/session-credentials';
import type { PolicyFile } from './policy/policy-file';
import { SessionPolicySource } from './policy/policy-source';
import { TenantPolicies } from './policy/tenant-policies';

/** All that session has to do with the proxy. */
export interface SessionSide {
  policies: TenantPolicies;
  credentials: CachedCredentials;
  record(record: EgressRecord): void;
  close(): Promise<void>;
}

const SERVICE = 'egress';
/** Whatever changes acts within five seconds, announced or not. */
const LOOK_MS = 2_000;

export interface SessionSideParts {
  file: PolicyFile;
  logger: Logger;
  shared: Pick<ServiceShared, 'tls'>;
  /** Where changes are announced; absent: they are looked for. */
  bus: NatsBus | undefined;
}

/** Undefined where there is no session to ask: then the operator's file is all there is. */
export async function sessionSide(
  config: EgressConfig,
  { file, logger, shared, bus }: SessionSideParts,
): Promise<SessionSide | undefined> {
  const { MARGAY_SESSION_URL: address, MARGAY_KEYS_DIR: folder } = config;
  if (address === undefined || folder === undefined) return undefined;
  const keys = await KeyRing.load(folder, SERVICE, shared);
  const source = new SessionPolicySource(address, keys, logger);
  const policies = new TenantPolicies(file, source, logger);
  const secrets = new SessionCredentials(address, keys, logger);
  const credentials = new CachedCredentials(secrets);
  const notes = new DenialNotes(address, keys, logger);
  bus?.subscribe(subjects.config('egress'), () => void policies.refresh());
  bus?.subscribe(subjects.config('secrets'), (tenantId) => credentials.forget(Buffer.from(tenantId).toString()));
  policies.watch(LOOK_MS);
  return {
    policies,
    credentials,
    record: (record) => notes.record(record),
    close: async () => {
      policies.close();
      for (const client of [source, secrets, notes]) client.close();
    },
  };
}
