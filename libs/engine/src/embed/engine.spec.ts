import { scriptedModel } from '@margay/testing';
import { z } from 'zod';
import { createEngine, defineTool, memoryPorts } from '../index';

const dice = defineTool({
  id: 'roll_dice',
  description: 'Rolls one die.',
  operation: 'get',
  effect: 'pure',
  input: z.object({ sides: z.number().int().min(2) }),
  execute: ({ sides }) => sides - 1,
});

it('runs a query to its answer', async () => {
  const model = scriptedModel([
    {
      text: 'rolling',
      calls: [
        { name: 'roll_dice', args: { sides: 20 } },
        { name: 'roll_dice', args: { sides: 1 } },
      ],
    },
    { text: 'Done: 19.' },
  ]);
  const engine = createEngine({ ...memoryPorts(), model, tools: [dice] });
  const session = await engine.createSession();
  const result = await session.run('Roll.');
  expect(result).toMatchObject({ text: 'Done: 19.', status: 'completed', doneReason: 'completed', steps: 1 });
  const events = [];
  for await (const event of session.events()) events.push(event);
  console.log(JSON.stringify(events, null, 1), model.requests[1]);
});
