import { storeGenerationOf } from './store-generation';
import { compareVersions } from './versions';

describe('compareVersions', () => {
  it('goes by numbers, not by letters', () => {
    const sorted = ['0.10.0', '0.9.9', '1.0.0', '0.9.10', '0.9.9-rc.1'].sort(compareVersions);
    expect(sorted).toEqual(['0.9.9', '0.9.9-rc.1', '0.9.10', '0.10.0', '1.0.0']);
    expect([compareVersions('1', '1.0.0'), compareVersions('', '0.0.0')]).toEqual([0, 0]);
  });
});

describe('storeGenerationOf', () => {
  it('is the number at the end of the name', () => {
    expect(['margay_g0', 'margay_g12', 'margay', 'a_g1_b'].map(storeGenerationOf)).toEqual([0, 12, 0, 0]);
  });
});
