import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Session } from '@margay/client';
import { answer, byConversation, callTools, type ScriptedToolCall } from '@margay/testing';
import { PlatformHarness, type WireFrame } from '../harness';
import { EffectServer } from './effect-server';

export const RUNNERS = ['agent-runner', 'agent-runner-2'];
export const EXECUTOR = 'tool-executor';

type Event = WireFrame['event'];

/** A platform of a process per service whose tools reach a world outside that counts. */
export class EffectWorld {
  readonly margay: PlatformHarness;

  private constructor(
    readonly effects: EffectServer,
    private readonly folder: string,
    env: NodeJS.ProcessEnv,
  ) {
    this.margay = new PlatformHarness({
      mode: 'split',
      runners: RUNNERS.length,
      copiesBundles: true,
      env: {
        MARGAY_HTTP_TOOLS_FILE: join(folder, 'tools.json'),
        MARGAY_CALL_LOST_SECONDS: '1',
        MARGAY_HEARTBEAT_SECONDS: '1',
        MARGAY_RUNNER_LOST_SECONDS: '10',
        ...env,
      },
    });
  }

  static async start(env: NodeJS.ProcessEnv = {}): Promise<EffectWorld> {
    const effects = await EffectServer.start();
    const folder = await mkdtemp(join(tmpdir(), 'margay-effects-'));
    await writeFile(join(folder, 'tools.json'), JSON.stringify(effects.tools));
    const world = new EffectWorld(effects, folder, env);
    await world.margay.start();
    return world;
  }

  async stop(): Promise<void> {
    await this.margay.stop();
    await this.effects.close();
    await rm(this.folder, { recursive: true, force: true });
  }

  /** Makes the model call one after the other, then say what the last one brought. */
  scriptCalls(...calls: ScriptedToolCall[]): void {
    this.margay.script(
      byConversation(({ results }) => {
        const next = calls[results.length];
        return next ? callTools(next) : answer(results.at(-1)?.content ?? '');
      }),
    );
  }

  async kill(...names: string[]): Promise<void> {
    await Promise.all(names.map((name) => this.margay.platform.get(name).kill('SIGKILL')));
  }

  async restart(...names: string[]): Promise<void> {
    await Promise.all(names.map((name) => this.margay.platform.restart(name)));
  }

  async eventsOf(session: Session, type: string): Promise<Event[]> {
    const events = (await this.margay.storedFrames(session.id)).map((text) => JSON.parse(text) as Event);
    return events.filter((event) => event.type === type);
  }

  /** Payloads of its stored events. */
  async payloadsOf(session: Session, type: string): Promise<Record<string, unknown>[]> {
    return (await this.eventsOf(session, type)).map(({ payload }) => payload ?? {});
  }
}
