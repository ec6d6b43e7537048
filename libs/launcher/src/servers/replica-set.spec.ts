import { configureReplicaSet, type Admin } from './replica-set';

describe('configureReplicaSet', () => {
  const commands: Record<string, unknown>[] = [];
  beforeEach(() => void (commands.length = 0));

  /** A mongod that has this configuration, or none yet. */
  const mongod = (config?: object): Admin => ({
    command: async (command) => {
      if (!('replSetGetConfig' in command)) {
        commands.push(command);
        return {};
      }
      if (config) return { config };
      throw Object.assign(new Error('no replset config has been received'), { code: 94 });
    },
  });
  const configured = { _id: 'margay', version: 3, term: 2, members: [{ _id: 0, host: '127.0.0.1:20001', votes: 1 }] };

  it('initiates a fresh one with one member', async () => {
    await configureReplicaSet(mongod(), '127.0.0.1:20001');
    expect(commands).toEqual([{ replSetInitiate: { _id: 'margay', members: [{ _id: 0, host: '127.0.0.1:20001' }] } }]);
  });

  it('leaves one alone that has its port of before', async () => {
    await configureReplicaSet(mongod(configured), '127.0.0.1:20001');
    expect(commands).toEqual([]);
  });

  it('moves the member of one that came up on another port, as a new version of the rest', async () => {
    await configureReplicaSet(mongod(configured), '127.0.0.1:20002');
    const members = [{ _id: 0, host: '127.0.0.1:20002', votes: 1 }];
    expect(commands).toEqual([{ replSetReconfig: { ...configured, version: 4, members }, force: true }]);
  });

  it('passes on any other refusal', async () => {
    const refusing: Admin = { command: () => Promise.reject(Object.assign(new Error('not authorized'), { code: 13 })) };
    await expect(configureReplicaSet(refusing, '127.0.0.1:20001')).rejects.toThrow('not authorized');
  });
});
