import { randomBytes } from 'node:crypto';
import { RealStore } from '../spec/real-store';
import { describeSecrets } from '../spec/secrets-contract';
import { DataKeyRepository, type TenantDataKeys } from './data-key.repository';
import { SecretRepository } from './secret.repository';

const real = new RealStore();

beforeAll(async () => {
  await real.start();
  await new SecretRepository(real.db.collection('secrets')).createIndexes();
}, 300_000);
afterAll(() => real.stop());

describe('a secret, in the document store', () => {
  describeSecrets(async () => {
    const tenantId = randomBytes(8).toString('hex');
    const tenants = real.db.collection<TenantDataKeys>('tenants');
    await tenants.deleteMany({});
    await tenants.insertOne({ _id: tenantId });
    const rows = new SecretRepository(real.db.collection('secrets'));
    return { tenantId, rows, dataKeys: new DataKeyRepository(tenants) };
  });
});
