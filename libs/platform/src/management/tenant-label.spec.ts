import { TenantLabel } from './tenant-label';

describe('the label of tenants', () => {
  it('is nothing until it is switched on', () => {
    const label = new TenantLabel(false);
    expect([label.names, label.of('acme')]).toEqual([[], {}]);
  });

  it('names 200 tenants, and all further ones alike', () => {
    const label = new TenantLabel(true);
    const named = Array.from({ length: 202 }, (_, index) => label.of(`t${index}`).tenant);
    expect(label.names).toEqual(['tenant']);
    expect(named.slice(198)).toEqual(['t198', 't199', 'other', 'other']);
    expect(label.of('t0')).toEqual({ tenant: 't0' });
  });
});
