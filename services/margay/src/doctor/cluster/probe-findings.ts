import { fault, ok, warning, type Finding } from '../finding';
import type { ProbeQuestions, ProbeReport } from './probe-script';

const NO_ENFORCEMENT =
  'use a network plugin that enforces NetworkPolicy, and networkPolicy.enabled: sandboxes run code of strangers';
const IDENTITY_REFUSED = 407;
const SLOW_WRITE_MS = 100;
const PROCESSES_MAX = 4_096;

/** What the report of a sandbox means. */
export function probeFindings(report: ProbeReport, questions: ProbeQuestions): Finding[] {
  return [
    closedFinding(report, questions),
    namesFinding(report, questions),
    proxyFinding(report.proxyStatus),
    tokenFinding(report),
    processFinding(report.processLimit),
    userFinding(report),
    volumeFinding(report),
  ];
}

function closedFinding({ reached }: ProbeReport, { closed }: ProbeQuestions): Finding {
  if (reached.length === 0) return ok('cluster.closed', `sandboxes reach none of ${Object.keys(closed).join(', ')}`);
  return fault('cluster.closed', `sandboxes reach ${reached.join(', ')}`, NO_ENFORCEMENT);
}

function namesFinding({ answered }: ProbeReport, { nameServers }: ProbeQuestions): Finding {
  if (answered.length > 0) return fault('cluster.names', `sandboxes get answers from the name server ${answered.join(', ')}`, NO_ENFORCEMENT); // prettier-ignore
  return ok('cluster.names', `no name server answers sandboxes (${nameServers.length} tried)`);
}

function proxyFinding(status: number | undefined): Finding {
  if (status === undefined) return ok('cluster.egress', 'sandboxes have no way out at all (egress is off)');
  if (status === 0) return fault('cluster.egress', 'sandboxes do not reach the egress proxy', 'look at the egress pods, and at MARGAY_EGRESS_ADDRESS of tool-executor'); // prettier-ignore
  if (status === IDENTITY_REFUSED) {
    const fix = 'let the network keep the source address of pods: no masquerading between the two namespaces';
    return fault('cluster.egress', 'the egress proxy does not know the sandbox by its address', fix);
  }
  return ok('cluster.egress', `the egress proxy knows sandboxes, and refuses what no rule allows (${status})`);
}

function tokenFinding({ hasToken }: ProbeReport): Finding {
  if (!hasToken) return ok('cluster.token', 'sandboxes hold no token of a service account');
  return fault('cluster.token', 'a token of a service account is mounted into sandboxes', 'look for an admission webhook that adds it'); // prettier-ignore
}

function processFinding(limit: string | undefined): Finding {
  const count = Number(limit);
  if (limit === undefined) return ok('cluster.processes', 'the limit of processes can not be seen from inside');
  if (Number.isInteger(count) && count <= PROCESSES_MAX) return ok('cluster.processes', `at most ${count} processes per pod`); // prettier-ignore
  const fix = 'set podPidsLimit of the kubelets to 1024 or so: one fork bomb takes its node with it';
  return warning('cluster.processes', `pods may start ${limit} processes`, fix);
}

function userFinding({ hasUserNamespace }: ProbeReport): Finding {
  const detail = hasUserNamespace ? 'sandboxes have users of their own' : 'sandboxes share the users of their node';
  return ok('cluster.users', detail);
}

function volumeFinding({ writeMs }: ProbeReport): Finding {
  const detail = `4 KiB reach the volume of a workspace in ${writeMs.toFixed(1)} ms`;
  if (writeMs <= SLOW_WRITE_MS) return ok('cluster.volume', detail);
  return warning('cluster.volume', detail, 'choose a faster workspaces.storageClass');
}
