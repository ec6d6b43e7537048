import { EgressSettings } from '../policy/egress-policy';
import { AddressGuard, isPublic } from './address-guard';

describe('whether an address is public', () => {
  it.each([
    '1.1.1.1',
    '8.8.4.4',
    '172.15.0.1',
    '172.32.0.1',
    '100.128.0.1',
    '223.255.255.255',
    '2606:4700::1',
    '2a00::1',
  ])('%s is', (address) => expect(isPublic(address)).toBe(true));

  it.each([
    ...['0.0.0.0', '10.9.8.7', '100.64.0.1', '100.127.255.255', '127.0.0.1', '127.255.0.1', '169.254.169.254'],
    ...['172.16.0.1', '172.31.255.255', '192.0.0.8', '192.0.2.1', '192.168.1.1', '198.18.0.1', '198.51.100.1'],
    ...['203.0.113.1', '224.0.0.1', '239.1.1.1', '240.0.0.1', '255.255.255.255'],
    ...['::', '::1', '::ffff:1.1.1.1', '::ffff:7f00:1', '::1.1.1.1', '64:ff9b::808:808', '64:ff9b:1::1', '100::1'],
    ...['2001::1', '2001:db8::1', '2002:7f00:1::', '3fff::1', 'fc00::1', 'fd00:ec2::254', 'fe80::1', 'fe80::1%eth0'],
    ...['2606:4700::1%lo', 'fec0::1', 'ff02::1', 'a.example', ''],
  ])('%j is not', (address) => expect(isPublic(address)).toBe(false));
});

describe('the addresses a name may stand for', () => {
  const guard = new AddressGuard(
    EgressSettings.parse({
      private: [{ host: '*.corp.example', cidr: '127.0.0.0/30', ports: [8080] }],
      clusterCidrs: ['8.8.8.0/24', '2a00:1::/32'],
    }),
  );

  it('are those the operator excepted, for their names and ports only', () => {
    expect(guard.accepts('git.corp.example', 8080, '127.0.0.2')).toBe(true);
    expect(guard.accepts('git.corp.example', 8081, '127.0.0.2')).toBe(false);
    expect(guard.accepts('git.corp.example', 8080, '127.0.0.4')).toBe(false);
    expect(guard.accepts('other.example', 8080, '127.0.0.2')).toBe(false);
    expect(guard.isExcepted('git.corp.example', 8080)).toBe(true);
    expect(guard.isExcepted('other.example', 8080)).toBe(false);
  });

  it('are not the public ones of the cluster', () => {
    expect(guard.accepts('a.example', 443, '8.8.8.8')).toBe(false);
    expect(guard.accepts('a.example', 443, '2a00:1::5')).toBe(false);
    expect(guard.accepts('a.example', 443, '8.8.4.4')).toBe(true);
  });
});
