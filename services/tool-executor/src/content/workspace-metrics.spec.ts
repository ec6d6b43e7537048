import { Registry } from 'prom-client';
import { showWorkspaces } from './workspace-metrics';

it('counts workspaces by state, and says nothing of a state that cannot be counted', async () => {
  const registry = new Registry();
  let isDown = false;
  showWorkspaces(registry, async (state) => {
    if (isDown && state === 'dormant') throw new Error('the store is away');
    return state.length;
  });
  const shown = async () =>
    (await registry.metrics()).split('\n').filter((line) => line.startsWith('margay_workspaces{'));
  expect(await shown()).toContain('margay_workspaces{state="dormant"} 7');
  expect(await shown()).toHaveLength(6);
  isDown = true;
  expect(await shown()).toHaveLength(5);
});
