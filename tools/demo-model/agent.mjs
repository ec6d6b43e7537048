// Decides the next answer from the conversation alone: it plays the tasks from the start, gives each step the results
// that are there, and stops at the first step whose results are missing.
import { mustAnswerNow, readRun } from './conversation.mjs';
import { findTasks } from './intent.mjs';
import { interpret } from './results.mjs';
import { change, replace, write } from './tasks/edit.mjs';
import { look } from './tasks/look.mjs';
import { read } from './tasks/read.mjs';
import { run, test } from './tasks/shell.mjs';
import { soFar, talk, unknown } from './tasks/talk.mjs';
import { oneLine } from './text.mjs';
import { Toolbox } from './toolbox.mjs';

export const SIGNATURE = '_This answer comes from Margay’s demonstration model, not from a real one._';

const PLAYERS = { look, read, change, replace, write, run, test, talk, unknown };

/** `{ text, calls }`: with calls, `text` announces them; without, it is the final answer. */
export function decide(messages, toolNames) {
  const turn = readRun(messages);
  const isToolless = toolNames.length === 0;
  // A wrap-up turn offers no tools: the tasks are played with those the run had, as far as their results go.
  const tools = new Toolbox(isToolless ? turn.calls.map((call) => call.name) : toolNames);
  const { tasks, notes } = chooseTasks(turn);
  const played = play(tasks, tools, turn);
  if (!played.wanted) return final([played.text, notes]);
  if (isToolless || mustAnswerNow(turn))
    return final([`I was asked to answer before I was done. What I have so far:`, soFar(turn.calls, interpret), notes]);
  return { text: played.wanted.say, calls: played.wanted.calls };
}

/** The newest message a rule fits wins; what came in while the run was working is acknowledged either way. */
function chooseTasks(turn) {
  const said = [...turn.requests, ...turn.steering];
  const newest = turn.steering.findLast(isWork) ?? turn.requests.findLast((text) => findTasks(text) !== undefined);
  const tasks = newest === undefined ? [{ kind: 'unknown', text: oneLine(said.at(-1) ?? '', 200) }] : findTasks(newest);
  return { tasks, notes: turn.steering.map((text) => acknowledge(text, newest)).join('\n\n') };
}

/** Thanks and greetings that come in meanwhile do not replace what is being worked on. */
const isWork = (text) => findTasks(text)?.some((task) => task.kind !== 'talk' || task.isAsked) ?? false;

function acknowledge(text, followed) {
  const quote = `While I was working you wrote: “${oneLine(text, 200)}”.`;
  return text === followed ? `${quote} I followed that.` : `${quote} I know no task in that, so it changed nothing.`;
}

function play(tasks, tools, turn) {
  const unused = new Set(turn.calls.filter((call) => call.result !== undefined));
  const texts = [];
  for (const task of tasks) {
    const steps = PLAYERS[task.kind](task, tools);
    let step = steps.next();
    while (!step.done) {
      const made = step.value.calls.map((call) => take(unused, call));
      const missing = step.value.calls.filter((_, index) => made[index] === undefined);
      if (missing.length > 0) return { wanted: { say: step.value.say, calls: missing } };
      step = steps.next(made.map((call) => resultOf(call, turn)));
    }
    texts.push(step.value);
  }
  return { text: texts.join('\n\n') };
}

/** Takes the first unused equal call, so a call that is made twice gets both of its results in order. */
function take(unused, call) {
  const made = [...unused].find((candidate) => isSameCall(candidate, call));
  if (made !== undefined) unused.delete(made);
  return made;
}

function isSameCall(made, call) {
  if (made.name !== call.name) return false;
  const names = Object.keys(made.arguments).filter((name) => name !== 'root');
  return (
    names.length === Object.keys(call.arguments).length &&
    names.every((name) => made.arguments[name] === call.arguments[name])
  );
}

/** The platform answers a repeated read by pointing at an earlier result; this follows the pointer. */
function resultOf(call, turn) {
  const result = interpret(call.result);
  if (result.kind !== 'unchanged') return result;
  const before = [...turn.earlierCalls, ...turn.calls.slice(0, turn.calls.indexOf(call))];
  const reads = before
    .filter((made) => made.result !== undefined && isSameCall(made, call))
    .map((made) => interpret(made.result));
  return reads.findLast((candidate) => candidate.kind === 'file') ?? result;
}

const final = (parts) => ({ text: [...parts.filter(Boolean), SIGNATURE].join('\n\n'), calls: [] });
