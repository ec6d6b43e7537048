import { randomBytes } from 'node:crypto';
import { MemoryDataKeys, MemorySecrets } from '../spec/memory-secrets';
import { describeSecrets } from '../spec/secrets-contract';

describe('a secret, in memory', () => {
  const [rows, dataKeys] = [new MemorySecrets(), new MemoryDataKeys()];

  describeSecrets(() => {
    const tenantId = randomBytes(8).toString('hex');
    dataKeys.tenants.clear();
    dataKeys.tenants.set(tenantId, []);
    return Promise.resolve({ tenantId, rows, dataKeys });
  });
});
