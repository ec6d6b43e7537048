import { randomBytes } from 'node:crypto';
import { serversOf } from '@margay/platform';
import { connect, type NatsConnection } from 'nats';
import { fault, ok, reasonOf, type Finding } from './finding';

const CONNECT_TIMEOUT_MS = 5_000;
const ECHO_TIMEOUT_MS = 2_000;
const OLDEST = [2, 10] as const;
/** One of each kind that services publish and read. */
const SUBJECTS = ['margay.config.ID', 'margay.dispatch.ID', 'margay.ID.session.ID.event', 'margay.ID.session.ID.delta'];

/** NATS: reached, new enough, and passing on what services say. */
export async function checkNats(url: string | undefined): Promise<Finding[]> {
  if (url === undefined) return [fault('nats.reached', 'no NATS server is named', 'set MARGAY_NATS_URL')];
  let connection: NatsConnection | undefined;
  try {
    connection = await connect({ ...serversOf(url), name: 'doctor', timeout: CONNECT_TIMEOUT_MS, reconnect: false });
    return [versionFinding(connection), await echoFinding(connection)];
  } catch (error) {
    const fix = 'check MARGAY_NATS_URL, its user and password, and that a NetworkPolicy lets this machine reach it';
    return [fault('nats.reached', `NATS does not answer: ${reasonOf(error)}`, fix)];
  } finally {
    await connection?.close();
  }
}

function versionFinding({ info }: NatsConnection): Finding {
  const version = info?.version ?? '0';
  const [major = 0, minor = 0] = version.split('.').map(Number);
  const isNew = major > OLDEST[0] || (major === OLDEST[0] && minor >= OLDEST[1]);
  if (!isNew) return fault('nats.reached', `NATS is version ${version}`, `run ${OLDEST.join('.')} or newer`);
  const jetStream = info?.jetstream ? 'JetStream on' : 'JetStream off, which nothing of this version needs';
  return ok('nats.reached', `version ${version}, ${jetStream}`);
}

async function echoFinding(connection: NatsConnection): Promise<Finding> {
  const id = `doctor${randomBytes(4).toString('hex')}`;
  const silent: string[] = [];
  for (const subject of SUBJECTS)
    if (!(await comesBack(connection, subject.replaceAll('ID', id)))) silent.push(subject);
  if (silent.length === 0) return ok('nats.permissions', `${SUBJECTS.length} kinds of subjects come back`);
  const detail = `messages do not come back on ${silent.join(', ')}`;
  return fault('nats.permissions', detail, 'let the user of MARGAY_NATS_URL publish and subscribe to margay.>');
}

async function comesBack(connection: NatsConnection, subject: string): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>();
  const timer = setTimeout(() => resolve(false), ECHO_TIMEOUT_MS);
  const subscription = connection.subscribe(subject, { max: 1, callback: (error) => resolve(error === null) });
  connection.publish(subject);
  try {
    return await promise;
  } finally {
    clearTimeout(timer);
    subscription.unsubscribe();
  }
}
