import { runWorld, toolDescriptor, type ScriptedAnswer } from '@margay/testing';
import { Tools, type Said, type ToolOutcome } from '../index';

const DONE: ScriptedAnswer = { text: 'Done.' };

/** A workspace with one file. */
class Workspace extends Tools {
  readonly asked: Said[] = [];
  fails = false;

  list() {
    return Promise.resolve([toolDescriptor({ tool_id: 'nothing' })]);
  }

  execute(): Promise<ToolOutcome> {
    return Promise.resolve({ status: 'ok', result: '' });
  }

  override async expandReferences(said: Said): Promise<string> {
    this.asked.push(said);
    if (this.fails) throw new Error('no sandbox');
    return said.text.replace('@a.txt', 'CONTENT');
  }
}

async function said(text: string, workspace = new Workspace()) {
  const world = await runWorld([DONE, DONE], [workspace]);
  await world.session.run(text);
  const heard = (n: number) =>
    world.request(n).messages.flatMap((message) => (message.role === 'user' ? [message.text] : []));
  return { world, workspace, heard };
}

describe('a reference in what a person said', () => {
  it('is replaced by what it leads to, for the model only, and stays so for later runs', async () => {
    const { world, workspace, heard } = await said('Look at @a.txt please.');
    expect(heard(1)).toEqual(['Look at CONTENT please.']);
    await world.session.run('And now?');
    expect(heard(2)).toEqual(['Look at CONTENT please.', 'And now?']);
    expect(workspace.asked).toEqual([{ text: 'Look at @a.txt please.', attachments: [] }]);
    expect((await world.payloads('user'))[0]).toMatchObject({ text: 'Look at @a.txt please.' });
  });

  it('leaves the words as they are where nothing can be found out', async () => {
    const workspace = new Workspace();
    workspace.fails = true;
    const { heard } = await said('Look at @a.txt', workspace);
    expect(heard(1)).toEqual(['Look at @a.txt']);
  });

  it('is not looked for where there is none', async () => {
    const { workspace } = await said('Write to bob@example.org about a@b');
    expect(workspace.asked).toEqual([]);
  });
});
