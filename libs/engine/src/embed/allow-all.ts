import { Approvals } from '../ports';

class AllowAll extends Approvals {
  decide(): Promise<{ decision: 'allow' }> {
    return Promise.resolve({ decision: 'allow' });
  }
}

/** Consents to every call. */
export const allowAll: Approvals = new AllowAll();
