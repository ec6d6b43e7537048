// A runner that executes nothing: it takes runs over Attach and writes events over Journal, as fast or as slowly as told.
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { runnersPb } from '../../../libs/contracts/dist/index.js';
import { createLogger, grpcClient, KeyRing, systemPrincipal } from '../../../libs/platform/dist/index.js';

const HEARTBEAT_MS = 2_000;
const SLOTS = 1_000;
const nowUs = () => Number(process.hrtime.bigint() / 1000n);

export class Writer {
  #runs = new Map();
  #waiting = new Map();
  #beat = 0;

  static async start({ platform, home, pool = 'default' }) {
    const keys = await KeyRing.load(join(home, 'keys'), 'agent-runner');
    const logger = createLogger({ service: 'bench', level: 'warn' });
    return new Writer(grpcClient(runnersPb.RunnersDefinition, platform.serviceAddress('session'), { keys, logger }), pool); // prettier-ignore
  }

  constructor(client, pool) {
    this.client = client;
    this.stream = client.attach({ principal: systemPrincipal('agent-runner', '_platform') });
    this.stream.on('data', ({ message }) => {
      if (message?.$case === 'assign') this.#waiting.get(message.value.sessionId)?.(message.value);
    });
    this.stream.on('error', () => undefined); // the end of the bench cuts it
    const hello = { instance: randomBytes(8).toString('hex'), pool, slots: SLOTS, version: 'bench' };
    this.stream.write({ message: { $case: 'hello', value: hello } });
    this.timer = setInterval(() => this.#heartbeat(), HEARTBEAT_MS);
  }

  /** Starts a run in the session and takes it; answers its open journal. */
  async take(session) {
    const assigned = new Promise((resolve) => this.#waiting.set(session.id, resolve));
    await session.query('go');
    const assign = await assigned;
    this.#waiting.delete(session.id);
    this.#runs.set(session.id, assign);
    const journal = new WriterJournal(this.client, assign);
    await journal.opened;
    return journal;
  }

  async stop() {
    clearInterval(this.timer);
    this.stream.cancel();
    this.client.close();
    await sleep(0);
  }

  #heartbeat() {
    this.#beat += 1;
    const runs = [...this.#runs.values()].map(({ sessionId, runId, epoch }) => ({ sessionId, runId, epoch }));
    const value = { beat: this.#beat, freeSlots: SLOTS - runs.length, runs };
    this.stream.write({ message: { $case: 'heartbeat', value } });
  }
}

class WriterJournal {
  #pending = new Map();
  #count = 0;

  constructor(client, assign) {
    this.sessionId = assign.sessionId;
    this.assign = assign;
    this.stream = client.journal({ grant: assign.grant });
    this.stream.on('error', () => undefined);
    this.opened = new Promise((resolve) => {
      this.stream.on('data', ({ message }) => this.#on(message, resolve));
    });
    const { sessionId, runId, epoch, grant } = assign;
    this.stream.write({ message: { $case: 'open', value: { sessionId, runId, epoch, grant, haveC: 0 } } });
  }

  /** One commit of that many events; `{ seq, sentUs, ackUs }`, seq being that of its last event. */
  write(events) {
    return this.#send({ kind: 'step', events: Array.from({ length: events }, (_, index) => eventOf(index)) });
  }

  async finish() {
    const completion = { done: true, done_reason: 'completed', task_result: 'done' };
    const finished = await this.#send({ kind: 'finish', text: 'done', completion });
    this.stream.end();
    return finished;
  }

  #send(command) {
    this.#count += 1;
    const commitId = `${this.assign.runId}.${this.assign.epoch}.${this.#count}`;
    return new Promise((resolve, reject) => {
      this.#pending.set(commitId, { resolve, reject, sentUs: nowUs() });
      const commandJson = JSON.stringify(command);
      this.stream.write({ message: { $case: 'commit', value: { commitId, commandJson } } });
    });
  }

  #on(message, opened) {
    if (message?.$case === 'opened' && message.value.last) return opened();
    if (message?.$case !== 'committed' && message?.$case !== 'rejected') return undefined;
    const { commitId, seq, message: text } = message.value;
    const { resolve, reject, sentUs } = this.#pending.get(commitId);
    this.#pending.delete(commitId);
    if (message.$case === 'committed') return resolve({ seq, sentUs, ackUs: nowUs() });
    return reject(new Error(`commit refused: ${text}`));
  }
}

const agent = { agent_id: 'bench0000000', depth: 0 };

/** Events of a step, of the usual size. */
function eventOf(index) {
  const call = { tool_id: 'read_file', operation: 'get', tool_input: { path: 'README.md', limit: index } };
  const whose = { agent_id: agent.agent_id, model: 'bench', tool_call_id: `call-${index}` };
  if (index % 2 === 0) return { type: 'tool_call', payload: { ...call, ...whose } };
  const payload = { ...call, ...whose, result: 'x'.repeat(64), success: true, summary: 'README.md' };
  return { type: 'tool_result', payload };
}
