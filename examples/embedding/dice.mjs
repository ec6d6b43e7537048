// An agent with one tool, in this process: OPENAI_BASE_URL=… MARGAY_MODEL=… node examples/embedding/dice.mjs
import { createEngine, defineTool } from '@margay/engine';
import { openAiModel } from '@margay/providers';
import { nodePorts } from '@margay/toolbox';
import { z } from 'zod';

const { OPENAI_BASE_URL: baseUrl, OPENAI_API_KEY: apiKey, MARGAY_MODEL: model } = process.env;
const dice = defineTool({
  id: 'roll_dice',
  description: 'Rolls one die.',
  operation: 'get',
  effect: 'pure',
  input: z.object({ sides: z.number().int().min(2) }),
  execute: ({ sides }) => 1 + Math.floor(Math.random() * sides),
});
const engine = createEngine({ ...nodePorts(), model: openAiModel({ baseUrl, apiKey, model }), tools: [dice] });
const session = await engine.createSession();
console.log((await session.run('Roll a 20-sided die twice and add.')).text);
