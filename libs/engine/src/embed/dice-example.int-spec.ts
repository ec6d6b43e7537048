import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { byConversation, ScriptedModelServer } from '@margay/testing';

const ROOT = join(__dirname, '../../../..');
const run = promisify(execFile);
let model: ScriptedModelServer;

beforeAll(async () => {
  // The example imports the packages as a user's program does: compiled.
  const compiler = join(ROOT, 'node_modules/tsnative/bin/tsc');
  await run(process.execPath, [compiler, '-b', 'libs/providers', 'libs/toolbox'], { cwd: ROOT });
}, 120_000);

beforeEach(async () => {
  const roll = { name: 'roll_dice', arguments: { sides: 20 } };
  const script = byConversation(({ step, results }) => {
    if (step === 0) return { toolCalls: [roll, roll] };
    return { text: `Sum: ${results.reduce((sum, { content }) => sum + Number(content), 0)}` };
  });
  model = await ScriptedModelServer.start({ script, apiKey: 'none' });
});

afterEach(() => model.close());

it('runs the example of ten lines against a model server', async () => {
  const { stdout } = await run(process.execPath, [join(ROOT, 'examples/embedding/dice.mjs')], {
    env: { PATH: process.env['PATH'], OPENAI_BASE_URL: model.baseUrl, OPENAI_API_KEY: 'none', MARGAY_MODEL: 'any' },
    timeout: 30_000,
  });
  expect(stdout).toMatch(/^Sum: \d+\n$/);
  expect(model.requests).toHaveLength(2);
  expect(model.requests.map(({ refused }) => refused)).toEqual([undefined, undefined]);
});
