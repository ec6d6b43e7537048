import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parse } from 'yaml';

interface Rule {
  alert: string;
  labels: Record<string, string>;
  annotations: { summary: string };
}

interface Firing {
  labels: Record<string, string>;
  annotations: { summary: string };
}

/** Series in the notation of Prometheus' own tests, a value a minute: `first+step x times`. */
interface Example {
  fires: string[];
  quiet: string[];
  /** What the alert says of the series, beside its own labels. */
  about?: Record<string, string>;
  /** Until it fires; 30 unless told. */
  minutes?: number;
}

const engine = process.env.MARGAY_TEST_ALERTS;
const alerts = parse(readFileSync(join(__dirname, '../../charts/margay/alerts.yaml'), 'utf8')) as Rule[];

const LENGTH = 130;
const constant = (series: string, value: number): string => `${series} ${value}x${LENGTH}`;
const growing = (series: string, perMinute: number): string => `${series} 0+${perMinute}x${LENGTH}`;

/** A histogram of which 60 values a minute fall below `seconds`, and none below half of that. */
function around(name: string, seconds: number, labels = ''): string[] {
  const bucket = (le: string): string => `${name}_bucket{le="${le}"${labels && `,${labels}`}}`;
  return [
    growing(bucket(String(seconds / 2)), 0),
    growing(bucket(String(seconds)), 60),
    growing(bucket('+Inf'), 60),
    growing(`${name}_count${labels && `{${labels}}`}`, 60),
  ];
}

/** Parts of 100 a minute that carry a label's bad value. */
const share = (name: string, good: string, bad: string, percent: number): string[] => [
  growing(`${name}{${good}}`, 100 - percent),
  growing(`${name}{${bad}}`, percent),
];

const EXAMPLES: Record<string, Example> = {
  MargayCommitSlow: {
    fires: around('margay_commit_duration_seconds', 0.5),
    quiet: around('margay_commit_duration_seconds', 0.1),
  },
  MargayCommitsUnknown: {
    fires: [growing('margay_commit_unknown_outcomes_total', 2)],
    quiet: [growing('margay_commit_unknown_outcomes_total', 0.5)],
  },
  MargayEffectsLag: {
    fires: [constant('margay_effects_lag_seconds{pod="a"}', 1), constant('margay_effects_lag_seconds{pod="b"}', 11)],
    quiet: [constant('margay_effects_lag_seconds{pod="a"}', 9)],
  },
  MargayJanitorBusy: {
    fires: [growing('margay_janitor_repairs_total{sweep="queue"}', 2)],
    quiet: [growing('margay_janitor_repairs_total{sweep="queue"}', 0.5)],
    about: { sweep: 'queue' },
  },
  MargayRunsQueued: {
    fires: [constant('margay_dispatch_oldest_queued_seconds{pool="default"}', 61)],
    quiet: [constant('margay_dispatch_oldest_queued_seconds{pool="default"}', 59)],
    about: { pool: 'default' },
  },
  MargayDispatchSlow: {
    fires: around('margay_dispatch_wait_seconds', 120, 'pool="default"'),
    quiet: around('margay_dispatch_wait_seconds', 30, 'pool="default"'),
    about: { pool: 'default' },
  },
  MargayTenantStarved: {
    fires: ['a', 'b', 'c'].flatMap((tenant) =>
      around('margay_dispatch_wait_seconds', tenant === 'c' ? 30 : 2, `pool="default",tenant="${tenant}"`),
    ),
    quiet: ['a', 'b', 'c'].flatMap((tenant) =>
      around('margay_dispatch_wait_seconds', tenant === 'c' ? 3 : 1, `pool="default",tenant="${tenant}"`),
    ),
    about: { pool: 'default', tenant: 'c' },
  },
  MargayNoRunner: {
    fires: [constant('margay_runner_slots{pool="default",state="free"}', 0)],
    quiet: [
      constant('margay_runner_slots{pool="default",state="free"}', 0),
      constant('margay_runner_slots{pool="default",state="busy"}', 3),
    ],
    about: { pool: 'default' },
  },
  MargayTakeovers: {
    fires: [growing('margay_takeovers_total{cause="crash"}', 1)],
    quiet: [growing('margay_takeovers_total{cause="crash"}', 0.2), growing('margay_takeovers_total{cause="drain"}', 9)],
  },
  MargayTakeoverSlow: {
    fires: around('margay_takeover_duration_seconds', 60),
    quiet: around('margay_takeover_duration_seconds', 17),
  },
  MargayRunsParked: {
    fires: [growing('margay_runs_parked_total{reason="poison"}', 0.2)],
    quiet: [constant('margay_runs_parked_total{reason="poison"}', 3)],
    about: { reason: 'poison' },
  },
  MargayIsolatedRuns: {
    fires: [growing('margay_isolated_runs_total{outcome="died"}', 0.1)],
    quiet: [growing('margay_isolated_runs_total{outcome="ended"}', 9)],
    minutes: 90,
  },
  MargayStreamDelay: {
    fires: around('margay_stream_event_delay_seconds', 0.5),
    quiet: around('margay_stream_event_delay_seconds', 0.1),
  },
  MargayStreamsFull: {
    fires: [growing('margay_stream_cuts_total{reason="slow"}', 90)],
    quiet: [
      growing('margay_stream_cuts_total{reason="slow"}', 30),
      growing('margay_stream_cuts_total{reason="drain"}', 90),
    ],
  },
  MargayGatewayErrors: {
    fires: share('margay_http_request_duration_seconds_count', 'status="200"', 'status="503"', 10),
    quiet: share('margay_http_request_duration_seconds_count', 'status="200"', 'status="404"', 10),
  },
  MargayLoopDelay: {
    fires: around('margay_event_loop_delay_seconds', 1, 'pod="a"'),
    quiet: around('margay_event_loop_delay_seconds', 0.1, 'pod="a"'),
    about: { pod: 'a' },
  },
  MargayModelFailing: {
    fires: share(
      'margay_model_call_duration_seconds_count',
      'provider="p",model="m",outcome="ok"',
      'provider="p",model="m",outcome="overloaded"',
      30,
    ),
    quiet: share(
      'margay_model_call_duration_seconds_count',
      'provider="p",model="m",outcome="ok"',
      'provider="p",model="m",outcome="canceled"',
      30,
    ),
    about: { provider: 'p', model: 'm' },
  },
  MargayUnknownOutcomes: {
    fires: [growing('margay_tool_unknown_outcomes_total{cause="sandbox_lost"}', 0.2)],
    quiet: [constant('margay_tool_unknown_outcomes_total{cause="sandbox_lost"}', 7)],
    about: { cause: 'sandbox_lost' },
  },
  MargayClaimSlow: {
    fires: around('margay_sandbox_claim_duration_seconds', 1, 'path="warm",class="default"'),
    quiet: [
      ...around('margay_sandbox_claim_duration_seconds', 0.2, 'path="warm",class="default"'),
      ...around('margay_sandbox_claim_duration_seconds', 20, 'path="cold",class="default"'),
    ],
    about: { class: 'default' },
  },
  MargayWarmPoolEmpty: {
    fires: [
      constant('margay_sandbox_pool{class="default",state="warm"}', 0),
      constant('margay_sandbox_pool{class="default",state="warming"}', 2),
    ],
    quiet: [
      constant('margay_sandbox_pool{class="default",state="warm"}', 1),
      constant('margay_sandbox_pool{class="default",state="warming"}', 2),
      constant('margay_sandbox_pool{class="strict",state="warm"}', 0),
      constant('margay_sandbox_pool{class="strict",state="warming"}', 0),
    ],
    about: { class: 'default' },
  },
  MargaySandboxStartsFailing: {
    fires: [constant('margay_sandbox_pool{class="default",state="failing"}', 3)],
    quiet: [constant('margay_sandbox_pool{class="default",state="failing"}', 2)],
    about: { class: 'default' },
  },
  MargaySandboxesFailing: {
    fires: [growing('margay_sandbox_claim_failures_total{reason="quota"}', 1)],
    quiet: [growing('margay_sandbox_claim_failures_total{reason="quota"}', 0.1)],
    about: { reason: 'quota' },
  },
  MargaySandboxesLost: {
    fires: [growing('margay_sandbox_lost_total{cause="node_lost"}', 1)],
    quiet: [growing('margay_sandbox_lost_total{cause="node_lost"}', 0.1)],
    about: { cause: 'node_lost' },
  },
  MargaySandboxOrphans: {
    fires: [growing('margay_sandbox_orphans_removed_total{kind="pod"}', 0.2)],
    quiet: [growing('margay_sandbox_orphans_removed_total{kind="pod"}', 0.05)],
    about: { kind: 'pod' },
    minutes: 90,
  },
  MargaySnapshotsFailing: {
    fires: [growing('margay_workspace_snapshot_failures_total{reason="snapshot_too_large"}', 0.2)],
    quiet: [growing('margay_workspace_snapshot_failures_total{reason="snapshot_dropped"}', 0.2)],
    about: { reason: 'snapshot_too_large' },
    minutes: 60,
  },
  MargayCanaryHit: {
    fires: [growing('margay_secret_hits_total{kind="canary"}', 0.2)],
    quiet: [
      growing('margay_secret_hits_total{kind="secret"}', 9),
      growing('margay_tool_secrets_masked_total{kind="secret"}', 9),
    ],
  },
  MargayEgressReflection: {
    fires: [growing('margay_egress_requests_total{decision="denied",reason="egress_reflection"}', 0.2)],
    quiet: [growing('margay_egress_requests_total{decision="denied",reason="egress_denied"}', 9)],
  },
  MargayEgressDenials: {
    fires: ['margay_egress_requests_total{decision="denied",reason="egress_denied"} 0+1x160 160+30x40'],
    // As many all the time; what is allowed does not count.
    quiet: [
      'margay_egress_requests_total{decision="denied",reason="egress_denied"} 0+30x200',
      'margay_egress_requests_total{decision="allowed",reason="none"} 0+1x160 160+90x40',
    ],
    minutes: 190,
  },
  MargayEgressPoliciesOld: {
    fires: [constant('margay_egress_policies_age_seconds{pod="a"}', 61)],
    quiet: [constant('margay_egress_policies_age_seconds{pod="a"}', 3)],
    about: { pod: 'a' },
  },
  MargayVersionGate: {
    fires: [constant('margay_version_gate_closed{pod="a"}', 1)],
    quiet: [constant('margay_version_gate_closed{pod="a"}', 0)],
    about: { pod: 'a' },
  },
  MargayClockSkew: {
    fires: [constant('margay_clock_skew_seconds{pod="a"}', -2)],
    quiet: [constant('margay_clock_skew_seconds{pod="a"}', 0.5)],
    about: { pod: 'a' },
  },
  MargayCertificate: {
    fires: [constant('margay_certificate_expiry_seconds{pod="a"}', 20 * 86_400)],
    quiet: [constant('margay_certificate_expiry_seconds{pod="a"}', 22 * 86_400)],
    about: { pod: 'a' },
  },
  MargayBackupOld: {
    fires: [constant('margay_backup_age_seconds', 27 * 3600)],
    quiet: [
      constant('margay_backup_age_seconds{pod="a"}', 27 * 3600),
      constant('margay_backup_age_seconds{pod="b"}', 60),
    ],
  },
  MargayStoreDown: {
    fires: [constant('margay_ready_check{pod="a",check="session.store"}', 0)],
    quiet: [
      constant('margay_ready_check{pod="a",check="session.store"}', 0),
      constant('margay_ready_check{pod="b",check="session.store"}', 1),
      constant('margay_ready_check{pod="b",check="session.version"}', 0),
    ],
    about: { check: 'session.store' },
  },
  MargayNatsDown: {
    fires: [constant('margay_ready_check{pod="a",check="gateway.nats"}', 0.5)],
    quiet: [constant('margay_ready_check{pod="a",check="gateway.nats"}', 1)],
    about: { check: 'gateway.nats' },
  },
};

function evaluate(cases: { alert: string; series: string[]; minutes: number }[]): Firing[][] {
  const input = JSON.stringify({ rules: alerts, cases });
  return JSON.parse(execFileSync(engine ?? '', { input, encoding: 'utf8' })) as Firing[][];
}

it('every alert of the chart has an example here', () => {
  expect(Object.keys(EXAMPLES).sort()).toEqual(alerts.map(({ alert }) => alert).sort());
});

(engine ? describe : describe.skip)('alerts in Prometheus', () => {
  const names = Object.keys(EXAMPLES);
  let firing: Firing[][];
  let quiet: Firing[][];

  beforeAll(() => {
    const of = (series: 'fires' | 'quiet') =>
      names.map((alert) => ({
        alert,
        series: EXAMPLES[alert]?.[series] ?? [],
        minutes: EXAMPLES[alert]?.minutes ?? 30,
      }));
    firing = evaluate(of('fires'));
    quiet = evaluate(of('quiet'));
  });

  it.each(names)('%s fires once, and says what of', (name) => {
    const rule = alerts.find(({ alert }) => alert === name);
    const fired = firing[names.indexOf(name)] ?? [];
    expect(fired.map(({ labels }) => labels)).toEqual([{ alertname: name, ...rule?.labels, ...EXAMPLES[name]?.about }]);
    const summary = fired[0]?.annotations.summary;
    expect(summary).not.toMatch(/\{\{|<no value>|error expanding/);
  });

  it.each(names)('%s stays quiet below its threshold', (name) => {
    expect(quiet[names.indexOf(name)]).toEqual([]);
  });
});
