import { createLogger } from '@margay/platform';
import { findCommand } from './commands';

const context = { environment: {}, logger: createLogger({ service: 'spec', level: 'off' }), write: () => undefined };

describe('commands that see to an installation', () => {
  it('are told from services and from other words', () => {
    for (const name of [
      'backup',
      'bootstrap',
      'check',
      'doctor',
      'migrate',
      'prepare-store',
      'release-sandboxes',
      'restore',
      'support-bundle',
    ])
      expect(findCommand([name])).toBeDefined();
    for (const argv of [[], ['--services', 'check'], ['toString'], ['verify']])
      expect(findCommand(argv)).toBeUndefined();
  });

  it('refuse a bad environment by names, never by values', async () => {
    const environment = { MARGAY_CELL: 'Secret!' };
    const run = async () =>
      findCommand(['bootstrap'])?.(['--out', '/nowhere', '--keys', 'k'], { ...context, environment });
    await expect(run()).rejects.toThrow(/MARGAY_CELL/);
    await expect(run()).rejects.not.toThrow(/Secret!/);
    await expect(findCommand(['migrate'])?.(['--now'], context)).rejects.toThrow(/Usage: margay.cjs migrate/);
    await expect(findCommand(['prepare-store'])?.([], context)).rejects.toThrow(/MARGAY_MONGODB_URL/);
  });
});
