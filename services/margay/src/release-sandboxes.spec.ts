import { createLogger } from '@margay/platform';
import { parseReleaseSandboxes, releaseSandboxes } from './release-sandboxes';

const logger = createLogger({ service: 'spec', level: 'off' });

/** What each look finds, and how often the end was asked for. */
function podsOf(...looks: string[][]) {
  const seen = { looks: 0, ends: 0 };
  const pods = {
    list: async () => looks[Math.min(seen.looks++, looks.length - 1)] ?? [],
    end: async () => void (seen.ends += 1),
  };
  return { pods, seen };
}

describe('the command release-sandboxes', () => {
  it('ends sandboxes until there are none, also one that comes late', async () => {
    const { pods, seen } = podsOf(['a', 'b'], ['b'], [], ['late'], []);
    await releaseSandboxes({ pods, logger, lookMs: 1 });
    expect(seen).toEqual({ looks: 7, ends: 3 });
  });

  it('is content where there is none', async () => {
    const { pods, seen } = podsOf([]);
    await releaseSandboxes({ pods, logger, lookMs: 1 });
    expect(seen).toEqual({ looks: 3, ends: 0 });
  });

  it('names one that does not end', async () => {
    const { pods } = podsOf(['stuck']);
    await expect(releaseSandboxes({ pods, logger, lookMs: 1, limitMs: 20 })).rejects.toThrow(/stuck; delete/);
  });

  it.each([[[]], [['--namespace', 'n']], [['--install', 'i']], [['--all']]])('refuses %j', (argv) => {
    expect(() => parseReleaseSandboxes(argv)).toThrow(/Usage: margay.cjs release-sandboxes/);
  });

  it('takes the namespace and the installation', () => {
    expect(parseReleaseSandboxes(['--namespace', 'n', '--install', 'i'])).toEqual({ namespace: 'n', install: 'i' });
  });
});
