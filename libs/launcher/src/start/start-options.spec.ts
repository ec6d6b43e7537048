import { parseStartOptions } from './start-options';

describe('parseStartOptions', () => {
  it('has defaults for everything', () => {
    expect(parseStartOptions([])).toEqual({ isWorkspaceCopied: false, runners: 1, mode: 'combined', isHelp: false });
  });

  it('reads all options, and the rest as the task', () => {
    const args = [
      '--split',
      '--runners',
      '3',
      '--port=8001',
      '--home',
      'h',
      '--workspace',
      'w',
      '--workspace-copy',
      'fix',
      'it',
    ];
    expect(parseStartOptions(args)).toEqual({
      task: 'fix it',
      workspace: 'w',
      home: 'h',
      port: 8001,
      isWorkspaceCopied: true,
      runners: 3,
      mode: 'split',
      isHelp: false,
    });
  });

  it.each([
    [['--runners', '0'], '--runners must be a whole number from 1 to 32, not "0"'],
    [['--runners', 'two'], 'not "two"'],
    [['--port', '70000'], '--port must be'],
    [['--workspace-copy'], '--workspace-copy needs --workspace DIR'],
    [['--tpyo'], 'tpyo'],
  ])('refuses %j with the usage', (args, message) => {
    expect(() => parseStartOptions(args)).toThrow(message);
    expect(() => parseStartOptions(args)).toThrow('npm start -- [options] [task text]');
  });
});
