import type { Session, StreamItem } from '@margay/client';
import type { CommandContext } from '../command-context';
import { EXIT } from '../failures';
import { sessionIdOf } from '../session-reference';
import { watch } from '../watch';
import { taskText, watchRun } from './run';

async function sessionOf(context: CommandContext, reference: string): Promise<Session> {
  const { client, profile } = await context.connect();
  return client.session(await sessionIdOf(client, reference, profile.project));
}

/** Steers the active run, or starts one. */
export async function send(
  context: CommandContext,
  reference: string,
  words: string[],
  options: { follow?: boolean },
): Promise<number> {
  const text = await taskText(context, words);
  const session = await sessionOf(context, reference);
  const sent = await session.message(text);
  if (!sent.steered && options.follow) return watchRun(context, sent.run);
  if (sent.steered && options.follow) return followSteered(context, session, text);
  const runId = sent.steered ? {} : { run_id: sent.run.id };
  context.print({
    json: { session_id: session.id, steered: sent.steered, ...runId },
    lines: [sent.steered ? 'sent: it is read at the next step' : `started ${sent.run.id}`],
    quiet: [],
  });
  return EXIT.completed;
}

async function followSteered(context: CommandContext, session: Session, text: string): Promise<number> {
  const renderer = context.renderer();
  const open = (options: Parameters<Session['stream']>[0]) => fromSteering(session.stream(options), text);
  const end = await watch(context, { session, renderer, open, ownsRun: false });
  return end === 'ended' ? EXIT.completed : EXIT.interrupted;
}

/** The stream from our own message on: the replay before its last copy is left out. */
async function* fromSteering(items: AsyncIterable<StreamItem>, text: string): AsyncGenerator<StreamItem> {
  let replay: StreamItem[] | undefined = [];
  for await (const item of items) {
    if (!replay) {
      yield item;
      continue;
    }
    if (item.type === 'user_steer' && item.payload.text === text) replay = [];
    replay.push(item);
    if (item.type !== 'session_state') continue;
    yield* replay;
    replay = undefined;
  }
}

/** Cancels the active run, or only ends its current step. */
export async function stop(
  context: CommandContext,
  reference: string,
  options: { interrupt?: boolean },
): Promise<number> {
  const session = await sessionOf(context, reference);
  const field = options.interrupt ? 'interrupted' : 'canceled';
  const done = options.interrupt ? await session.interrupt() : await session.cancel();
  const line = done ? `${field} the run of session ${session.id}` : `session ${session.id} runs nothing`;
  context.print({ json: { session_id: session.id, [field]: done }, lines: [line], quiet: [] });
  return EXIT.completed;
}

export interface TailOptions {
  follow?: boolean;
  after?: string;
  raw?: boolean;
}

/** A session's events from the start or a place on, then what comes. */
export async function tail(context: CommandContext, reference: string, options: TailOptions): Promise<number> {
  const session = await sessionOf(context, reference);
  const renderer = context.renderer({ raw: options.raw ?? false, showsUser: true });
  const after = options.after === undefined ? {} : { after: cursorOf(options.after) };
  const end = await watch(context, {
    session,
    renderer,
    ownsRun: false,
    open: (stream) => session.stream({ ...stream, ...after, follow: options.follow ?? false }),
  });
  return end === 'ended' ? EXIT.completed : EXIT.interrupted;
}

/** A number counts events; anything else is a time. */
const cursorOf = (text: string): { seq: number } | { ts: string } =>
  /^\d+$/.test(text) ? { seq: Number(text) } : { ts: text };
