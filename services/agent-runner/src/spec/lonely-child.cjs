// The process of a single run as a spec plays it: what it does is the id of its run.
let assignment;
const grants = [];

const say = (message) => new Promise((resolve) => process.send(message, resolve));
const end = (detail) => say({ kind: 'ended', end: { kind: 'lost', detail } }).then(() => process.exit(0));

const PARTS = {
  ends: () => say({ kind: 'ended', end: { kind: 'left' } }).then(() => process.exit(0)),
  exits: () => process.exit(3),
  'is killed': () => process.kill(process.pid, 'SIGKILL'),
  'eats memory': () => {
    const hoard = [];
    for (;;) hoard.push(new Array(10_000).fill(hoard.length + 0.5));
  },
  // Until it is told to stop.
  waits: () => undefined,
  'never listens': () => undefined,
  'talks nonsense': () => say({ kind: 'nonsense' }).then(() => PARTS.ends()),
  'shows its grants': () => setInterval(() => grants.length > 1 && end(grants.join()), 5),
  'shows its environment': () => end(JSON.stringify(process.env)),
  'shows its settings': () => end(process.execArgv.join(' ')),
  'shows its assignment': () => end(JSON.stringify(assignment)),
};

process.on('disconnect', () => process.exit(0));
process.on('message', (message) => {
  if (message.kind === 'grant') grants.push(message.grant);
  if (message.kind === 'stop' && assignment.assign.runId !== 'never listens') void end(`stopped for ${message.cause}`);
  if (message.kind !== 'assign') return;
  assignment = message;
  grants.push(message.assign.grant);
  const part = message.assign.runId;
  if (part === 'does not start') process.exit(2);
  void say({ kind: 'ready' }).then(PARTS[part]);
});
