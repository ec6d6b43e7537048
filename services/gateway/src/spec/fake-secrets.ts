import { isAtRev, type secretsPb } from '@margay/contracts';
import { AbortedError, NotFoundError } from '@margay/errors';
import type { GrpcHandlers } from '@margay/platform';

/** The secrets that session would keep; what it was asked stands in `asked`. */
export class FakeSecrets {
  readonly asked: object[] = [];
  private readonly stored = new Map<string, secretsPb.SecretInfo>();

  handlers(): GrpcHandlers<typeof secretsPb.SecretsDefinition> {
    return {
      listSecrets: ({ scope }) =>
        Promise.resolve({ secrets: [...this.stored.values()].filter((secret) => secret.scope === scope) }),
      putSecret: async ({ value: _kept, ...request }) => {
        this.asked.push(request);
        const { scope, name, ifRev } = request;
        const rev = this.stored.get(`${scope}/${name}`)?.rev ?? 0;
        if (!isAtRev(ifRev, rev)) throw new AbortedError('rev_moved', 'it is at another revision');
        const written = { updatedBy: 'user:ada', updatedAt: new Date(0), lastUsedAt: undefined };
        const secret = { ...request, rev: rev + 1, fingerprint: '0123abcd', ...written };
        this.stored.set(`${scope}/${name}`, secret);
        return Promise.resolve({ secret, created: rev === 0 });
      },
      deleteSecret: async ({ scope, name }) => {
        if (!this.stored.delete(`${scope}/${name}`)) throw new NotFoundError('secret_not_found', `secret ${name} not found`); // prettier-ignore
        return Promise.resolve({});
      },
      useSecret: () => Promise.reject(new Error('not part of these specs')),
      listSecretPrints: () => Promise.reject(new Error('not part of these specs')),
    };
  }

  /** One that is there before a test. */
  add(name: string): void {
    const now = new Date(0);
    const terms = { kind: 'opaque', uses: ['egress'], hosts: ['a.example'], git: undefined, expiresAt: undefined };
    const written = { updatedBy: 'user:ada', updatedAt: now, lastUsedAt: now };
    this.stored.set(`tenant/${name}`, { scope: 'tenant', name, ...terms, rev: 1, fingerprint: '0123abcd', ...written });
  }
}
