import type { SandboxRecord } from './sandbox-records';
import { chooseUid, isOwnUid } from './users';

const record = (uid: number, more: Partial<SandboxRecord> = {}): SandboxRecord => ({
  sandboxId: String(uid),
  tenantId: 't',
  sessionId: 's',
  folder: '/f',
  uid,
  gid: uid,
  generation: 0,
  epoch: 0,
  fingerprint: '',
  processes: [],
  lastUsedAt: uid,
  ...more,
});
const none = new Set<number>();
const all = Array.from({ length: 10_000 }, (_, index) => 20_000 + index);

describe('chooseUid', () => {
  it('gives a number from its own range that neither a sandbox nor a running process has', () => {
    const { uid } = chooseUid([], none, '/home/a/.margay');
    expect(isOwnUid(uid)).toBe(true);
    const second = chooseUid([record(uid)], none, '/home/a/.margay').uid;
    const third = chooseUid([record(uid)], new Set([second]), '/home/a/.margay').uid;
    expect(new Set([uid, second, third]).size).toBe(3);
  });

  it('starts elsewhere for another home', () => {
    const first = chooseUid([], none, '/home/a/.margay').uid;
    expect(chooseUid([], none, '/home/b/.margay').uid).not.toBe(first);
  });

  it('takes the number of the stopped sandbox unused for longest when all are given out', () => {
    const records = all.map((uid) => record(uid, uid < 20_005 ? { processes: [{ pid: 1, startedAt: '1' }] } : {}));
    expect(chooseUid(records, none, '/h')).toMatchObject({ uid: 20_005, takenFrom: { sandboxId: '20005' } });
  });

  it('says so when every sandbox user is running', () => {
    const records = all.map((uid) => record(uid, { processes: [{ pid: 1, startedAt: '1' }] }));
    expect(() => chooseUid(records, none, '/h')).toThrow('in use');
  });
});
