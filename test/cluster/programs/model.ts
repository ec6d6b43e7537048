// A model whose runs work until they are told to end; runs in a pod. Beside the model's port it answers the test, on
// loopback, and the HTTP tool `note`.
import { createServer, type IncomingMessage } from 'node:http';
import { json } from 'node:stream/consumers';
import { setTimeout as delay } from 'node:timers/promises';
import { answer, byConversation, callTools, ScriptedModelServer, type Answer } from '@margay/testing';
import { COUNT_FILE, isInSandbox, MODEL_ANSWER, NOTE_MS, PORTS, runIn, type Progress } from '../runs/script';

const WORDS = { chunks: 8, deltaDelayMs: 120 };

/** Calls of the model so far, by run. */
const calls: Progress['calls'] = {};
/** What the tool `note` was told, in order. */
const notes: string[] = [];
const ended = new Set<string>();

const script = byConversation(({ user, step, results }): Answer => {
  const run = runIn(user);
  if (run === undefined) return step === 0 ? callTools({ name: 'aider_list_dir_tool', arguments: {} }) : answer(MODEL_ANSWER, WORDS); // prettier-ignore
  calls[run.name] = (calls[run.name] ?? 0) + 1;
  const hasRead = JSON.stringify(results.at(-1)?.arguments ?? '').includes(`cat ${COUNT_FILE}`);
  if (!ended.has(run.batch) || step === 0) return work(run.name, step);
  if (isInSandbox(run) && !hasRead) return shell(`cat ${COUNT_FILE}`);
  return answer(`The work of ${run.name} is done.`, WORDS);
});

function work(run: string, step: number): Answer {
  const token = `${run}-${step}`;
  const call = isInSandbox(runIn(run))
    ? shell(`echo ${token} >> ${COUNT_FILE}; sleep 0.5`)
    : callTools({ name: 'note', arguments: { token } });
  return { ...call, text: `Step ${step} of ${run} is on its way.`, ...WORDS };
}

const shell = (command: string): Answer => callTools({ name: 'aider_shell_tool', arguments: { command } });

async function note(request: IncomingMessage): Promise<object> {
  const { token } = (await json(request)) as { token: string };
  notes.push(token);
  await delay(NOTE_MS);
  return { noted: token };
}

async function control(request: IncomingMessage): Promise<Progress> {
  if (request.method === 'POST') ended.add(((await json(request)) as { batch: string }).batch);
  return { calls, notes };
}

/** A server whose answers are JSON. */
const answering = (answerOf: (request: IncomingMessage) => Promise<object>) =>
  createServer((request, response) => {
    const failed = (error: unknown) => response.writeHead(500).end(String(error));
    answerOf(request).then((body) => response.setHeader('content-type', 'application/json').end(JSON.stringify(body)), failed); // prettier-ignore
  });

answering(note).listen(PORTS.note, '0.0.0.0');
answering(control).listen(PORTS.control, '127.0.0.1');
void ScriptedModelServer.start({ script, listen: { host: '0.0.0.0', port: PORTS.model } }).then((model) =>
  // What it has recorded is of no use here, and would grow.
  setInterval(() => model.clear(), 5_000),
);
