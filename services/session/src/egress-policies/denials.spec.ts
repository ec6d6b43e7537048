import type { Principal } from '@margay/contracts';
import { acceptCommand, createCommand } from '@margay/testing';
import { MemorySession } from '../spec/memory-session';
import { DenialsService } from './denials.service';

const proxy: Principal = { v: 1, iss: 'egress', tenantId: 'tenant', principal: 'system:egress', role: 'operator', scopes: null }; // prettier-ignore
let session: MemorySession;
let denials: DenialsService;

beforeEach(async () => {
  session = new MemorySession();
  denials = new DenialsService(session.log);
  await session.submit(createCommand({ tenantId: 'tenant' }));
});

const note = (host: string, principal = proxy, service = denials) =>
  service.note(principal, { sessionId: session.id, host, port: 443 });

async function startRun(text: string) {
  await session.submit(acceptCommand(text));
  return session.claim();
}

describe('a host that a sandbox was refused', () => {
  it('stands in the transcript once per run, whoever is told how often', async () => {
    await startRun('one');
    const other = new DenialsService(session.log);
    expect(await note('a.example')).toBe(true);
    await Promise.all([note('a.example'), note('a.example', proxy, other), note('b.example', proxy, other)]);
    const notes = await session.events('run_note');
    expect(notes.map(({ payload }) => payload)).toEqual([
      {
        text: 'a.example:443 could not be reached: the egress policy does not allow it.',
        kind: 'egress_denied',
        host: 'a.example',
        port: 443,
      },
      expect.objectContaining({ host: 'b.example' }),
    ]);
  });

  it('stands there again in the next run, and nowhere between runs', async () => {
    expect(await note('a.example')).toBe(false);
    await session.submit(acceptCommand('one'));
    await session.finish();
    expect(await note('a.example')).toBe(false);
    await startRun('two');
    expect(await note('a.example')).toBe(true);
  });

  it('does not disturb the runner, whose next step follows', async () => {
    const run = await startRun('one');
    await note('a.example');
    const events = [{ type: 'run_note' as const, payload: { text: 'mine' } }];
    await session.submit({ kind: 'step', commitId: 's1', ...run, events, records: [] });
    expect(await session.events('run_note')).toHaveLength(2);
  });

  it('is one of some twenty at most', async () => {
    await startRun('one');
    for (let index = 0; index < 30; index += 1) await note(`h${index}.example`);
    expect(await session.events('run_note')).toHaveLength(20);
  });

  it('is told by the proxy only, about a session of the tenant', async () => {
    await startRun('one');
    await expect(note('a.example', { ...proxy, principal: 'user:ada' })).rejects.toMatchObject({
      reason: 'permission_denied',
    });
    expect(await note('a.example', { ...proxy, tenantId: 'other' })).toBe(false);
    expect(await session.events('run_note')).toEqual([]);
  });
});
