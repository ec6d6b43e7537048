import { randomUUID } from 'node:crypto';
import type { Metadata } from '@grpc/grpc-js';
import { METADATA, type Principal, type RunGrant, type SandboxGrant } from '@margay/contracts';
import { CancelledError, UnauthenticatedError } from '@margay/errors';
import type { KeyRing } from '../auth/key-ring';
import type { CallContext } from './service-types';
import { textOf } from './status';
import type { PeerCall } from '../tls/credentials';

export interface Credentials {
  principal?: Principal;
  grant?: RunGrant;
  sandboxGrant?: SandboxGrant;
}

/** The part of a grpc-js server call that all four kinds share. */
export interface CallEvents extends PeerCall {
  metadata: Metadata;
  cancelled: boolean;
  on(event: 'cancelled', listener: () => void): unknown;
}

const REQUEST_ID = /^[\w.:-]{1,64}$/;

/** Verifies whatever tokens the call carries; one bad token refuses the call, even if the other would do. */
export async function readCredentials(
  metadata: Metadata,
  keys: KeyRing,
  audience: string,
  sandboxId: string | undefined,
): Promise<Credentials> {
  const credentials: Credentials = {};
  const principal = textOf(metadata, METADATA.principal);
  const grant = textOf(metadata, METADATA.grant);
  if (principal) credentials.principal = await keys.verifyPrincipal(principal, audience);
  if (grant && sandboxId !== undefined) credentials.sandboxGrant = await keys.verifySandboxGrant(grant, sandboxId);
  else if (grant) credentials.grant = await keys.verifyRunGrant(grant, audience);
  return credentials;
}

export class ServerCallContext implements CallContext {
  readonly metadata: Metadata;
  readonly requestId: string;
  private readonly aborter = new AbortController();
  private failure?: (error: unknown) => void;
  private credentials: Credentials = {};

  constructor(call: CallEvents) {
    this.metadata = call.metadata;
    const given = textOf(call.metadata, METADATA.requestId);
    this.requestId = given && REQUEST_ID.test(given) ? given : randomUUID();
    if (call.cancelled) this.cancel();
    call.on('cancelled', () => this.cancel());
  }

  get signal(): AbortSignal {
    return this.aborter.signal;
  }

  admit(credentials: Credentials): void {
    this.credentials = credentials;
  }

  hasPrincipal(): boolean {
    return this.credentials.principal !== undefined;
  }

  hasGrant(): boolean {
    return this.credentials.grant !== undefined;
  }

  principal(): Principal {
    const principal = this.credentials.principal ?? missing('principal', METADATA.principal);
    return { ...principal, requestId: this.requestId };
  }

  grant(): RunGrant {
    return this.credentials.grant ?? missing('grant', METADATA.grant);
  }

  sandboxGrant(): SandboxGrant {
    return this.credentials.sandboxGrant ?? missing('grant', METADATA.grant);
  }

  fail(error: unknown): void {
    this.failure?.(error);
  }

  onFail(listener: (error: unknown) => void): void {
    this.failure = listener;
  }

  private cancel(): void {
    this.aborter.abort(new CancelledError('cancelled', 'The caller cancelled, left, or its deadline passed.'));
  }
}

/** The trace that the caller was in when it made the call. */
export function traceparentOf({ metadata }: Pick<CallContext, 'metadata'>): string | undefined {
  return textOf(metadata, 'traceparent');
}

function missing(word: string, key: string): never {
  throw new UnauthenticatedError(`${word}_missing`, `This call needs a signed ${word} in the metadata ${key}.`);
}
