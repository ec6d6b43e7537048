/** A secret for one host, as it may be used now. */
export interface Credential {
  /** For the audit. */
  name: string;
  value: string;
  /** Of a git account. */
  username?: string;
  /** From then on it is as if it were not there. */
  expiresAt?: Date;
}

/** Whose secret is wanted, and for what. */
export interface CredentialQuery {
  tenantId: string;
  /** A member's own secrets serve only while a run of his is under way in it. */
  sessionId: string;
  host: string;
  /** Absent: the git account with the longest prefix of `repository`. */
  name?: string;
  /** Path of the repository, without a leading slash. */
  repository?: string;
}

export abstract class Credentials {
  /**
   * Undefined where there is none, or none for this use.
   * @throws UnavailableError `egress_unavailable` where that cannot be found out
   */
  abstract find(query: CredentialQuery): Promise<Credential | undefined>;
}
