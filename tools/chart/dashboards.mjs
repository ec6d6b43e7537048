// Dashboards for Grafana, as short as they can be said; `npm run test:chart -- --write` makes the files of the chart.

const quantile = (q, metric, by = '') =>
  `histogram_quantile(${q}, sum by (le${by && `, ${by}`}) (rate(${metric}_bucket[$__rate_interval])))`;
const rate = (metric, by, filter = '') => `sum by (${by}) (rate(${metric}${filter}[$__rate_interval]))`;

/** Title of a panel → [unit, { legend: expression }]. */
const BOARDS = {
  overview: {
    title: 'Margay: overview',
    panels: {
      'Running and queued runs': [
        'short',
        {
          demand: 'max by (pool) (margay_dispatch_demand_runs)',
          queued: 'max by (pool) (margay_dispatch_queued_runs)',
        },
      ],
      'Runs ended': ['ops', { '{{done_reason}}': rate('margay_runs_ended_total', 'done_reason') }],
      Requests: ['reqps', { '{{status}}': rate('margay_http_request_duration_seconds_count', 'status') }],
      'Request time': [
        's',
        {
          p50: quantile(0.5, 'margay_http_request_duration_seconds'),
          p99: quantile(0.99, 'margay_http_request_duration_seconds'),
        },
      ],
      'Open streams': ['short', { '{{pod}}': 'sum by (pod) (margay_streams_open)' }],
      'Event loop delay, p99': ['s', { '{{pod}}': quantile(0.99, 'margay_event_loop_delay_seconds', 'pod') }],
      Versions: ['short', { '{{version}}': 'count by (version) (margay_build_info)' }],
      'Waiting for other versions': ['short', { '{{pod}}': 'max by (pod) (margay_version_gate_closed)' }],
      'Parts of readiness that fail': ['short', { '{{pod}} {{check}}': 'margay_ready_check < 1' }],
      'Refused by rate limits': ['ops', { '{{scope}}': rate('margay_rate_limited_total', 'scope') }],
    },
  },
  'runs-and-models': {
    title: 'Margay: runs and models',
    panels: {
      'Slots of the runners': ['short', { '{{pool}} {{state}}': 'sum by (pool, state) (margay_runner_slots)' }],
      'Oldest waiting run': ['s', { '{{pool}}': 'max by (pool) (margay_dispatch_oldest_queued_seconds)' }],
      'Wait for a runner': [
        's',
        { p50: quantile(0.5, 'margay_dispatch_wait_seconds'), p95: quantile(0.95, 'margay_dispatch_wait_seconds') },
      ],
      'Runs taken back': ['ops', { '{{cause}}': rate('margay_takeovers_total', 'cause') }],
      'Time of a takeover': [
        's',
        {
          p50: quantile(0.5, 'margay_takeover_duration_seconds'),
          p99: quantile(0.99, 'margay_takeover_duration_seconds'),
        },
      ],
      'Overhead of a step': [
        's',
        { p50: quantile(0.5, 'margay_step_overhead_seconds'), p99: quantile(0.99, 'margay_step_overhead_seconds') },
      ],
      'Model calls': [
        'ops',
        { '{{model}} {{outcome}}': rate('margay_model_call_duration_seconds_count', 'model, outcome') },
      ],
      'First token, p95': ['s', { '{{model}}': quantile(0.95, 'margay_model_first_token_seconds', 'model') }],
      Tokens: ['short', { '{{model}} {{kind}}': rate('margay_tokens_total', 'model, kind') }],
      'Runs parked': ['ops', { '{{reason}}': rate('margay_runs_parked_total', 'reason') }],
      'Runs driven alone': ['ops', { '{{outcome}}': rate('margay_isolated_runs_total', 'outcome') }],
    },
  },
  sandboxes: {
    title: 'Margay: sandboxes, tools and egress',
    panels: {
      Sandboxes: ['short', { '{{class}} {{state}}': 'sum by (class, state) (margay_sandboxes)' }],
      'Waiting sandboxes': ['short', { '{{class}} {{state}}': 'max by (class, state) (margay_sandbox_pool)' }],
      'Time of a claim, p95': [
        's',
        { '{{class}} {{path}}': quantile(0.95, 'margay_sandbox_claim_duration_seconds', 'class, path') },
      ],
      'Claims that failed': ['ops', { '{{reason}}': rate('margay_sandbox_claim_failures_total', 'reason') }],
      'Sandboxes lost': ['ops', { '{{cause}}': rate('margay_sandbox_lost_total', 'cause') }],
      'Writes to the Kubernetes API': [
        'ops',
        { '{{verb}} {{kind}}': rate('margay_kubernetes_writes_total', 'verb, kind') },
      ],
      Workspaces: ['short', { '{{state}}': 'max by (state) (margay_workspaces)' }],
      'Time of an archive, p95': [
        's',
        { '{{kind}}': quantile(0.95, 'margay_workspace_snapshot_duration_seconds', 'kind') },
      ],
      'Archives that failed': ['ops', { '{{reason}}': rate('margay_workspace_snapshot_failures_total', 'reason') }],
      'Leftovers removed': ['ops', { '{{kind}}': rate('margay_sandbox_orphans_removed_total', 'kind') }],
      'Tool calls': ['ops', { '{{tool}} {{status}}': rate('margay_tool_call_duration_seconds_count', 'tool, status') }],
      'Time of a tool call, p95': ['s', { '{{tool}}': quantile(0.95, 'margay_tool_call_duration_seconds', 'tool') }],
      'Unknown outcomes': ['ops', { '{{cause}}': rate('margay_tool_unknown_outcomes_total', 'cause') }],
      'Secrets masked in output of tools': ['ops', { '{{kind}}': rate('margay_tool_secrets_masked_total', 'kind') }],
      'Secrets that came as far as session': ['ops', { '{{kind}}': rate('margay_secret_hits_total', 'kind') }],
      'Requests to the outside': [
        'reqps',
        { '{{decision}} {{reason}}': rate('margay_egress_requests_total', 'decision, reason') },
      ],
      'Bytes to and from the outside': ['Bps', { '{{direction}}': rate('margay_egress_bytes_total', 'direction') }],
      'Open connections to the outside': ['short', { '{{pod}}': 'sum by (pod) (margay_egress_connections)' }],
      'Who asks the proxy': ['ops', { '{{outcome}}': rate('margay_egress_identity_total', 'outcome') }],
      'Age of the policies of tenants': ['s', { '{{pod}}': 'max by (pod) (margay_egress_policies_age_seconds)' }],
    },
  },
  'store-and-streams': {
    title: 'Margay: store and streams',
    panels: {
      Commits: ['ops', { commits: 'sum(rate(margay_commit_duration_seconds_count[$__rate_interval]))' }],
      'Time of a commit': [
        's',
        { p50: quantile(0.5, 'margay_commit_duration_seconds'), p99: quantile(0.99, 'margay_commit_duration_seconds') },
      ],
      'Conflicts and unknown outcomes': [
        'ops',
        {
          conflicts: 'sum(rate(margay_commit_conflicts_total[$__rate_interval]))',
          unknown: 'sum(rate(margay_commit_unknown_outcomes_total[$__rate_interval]))',
          fenced: 'sum(rate(margay_fenced_commands_total[$__rate_interval]))',
        },
      ],
      'Store operations': [
        'ops',
        {
          '{{collection}} {{operation}}': rate(
            'margay_store_operation_duration_seconds_count',
            'collection, operation',
          ),
        },
      ],
      'Store operations, p99': [
        's',
        {
          '{{collection}} {{operation}}': quantile(
            0.99,
            'margay_store_operation_duration_seconds',
            'collection, operation',
          ),
        },
      ],
      'Rows behind their logs': ['s', { lag: 'max(margay_effects_lag_seconds)' }],
      Repairs: ['ops', { '{{sweep}}': rate('margay_janitor_repairs_total', 'sweep') }],
      'Clocks off the store': ['s', { '{{pod}}': 'max by (pod) (abs(margay_clock_skew_seconds))' }],
      'Age of the last backup': ['s', { age: 'min(margay_backup_age_seconds)' }],
      'From stored to written': [
        's',
        {
          p50: quantile(0.5, 'margay_stream_event_delay_seconds'),
          p99: quantile(0.99, 'margay_stream_event_delay_seconds'),
        },
      ],
      'Streams cut': ['ops', { '{{reason}}': rate('margay_stream_cuts_total', 'reason') }],
      'gRPC calls, p99': ['s', { '{{method}}': quantile(0.99, 'margay_grpc_server_duration_seconds', 'method') }],
    },
  },
};

/** @returns file name without ending → dashboard */
export function dashboards() {
  return Object.fromEntries(Object.entries(BOARDS).map(([name, board]) => [name, dashboard(name, board)]));
}

function dashboard(name, { title, panels }) {
  return {
    uid: `margay-${name}`,
    title,
    tags: ['margay'],
    schemaVersion: 39,
    refresh: '30s',
    time: { from: 'now-3h', to: 'now' },
    templating: {
      list: [{ name: 'source', type: 'datasource', query: 'prometheus', label: 'Data source' }],
    },
    panels: Object.entries(panels).map(([panelTitle, [unit, targets]], index) =>
      panel(panelTitle, unit, targets, index),
    ),
  };
}

function panel(title, unit, targets, index) {
  return {
    id: index + 1,
    title,
    type: 'timeseries',
    datasource: { type: 'prometheus', uid: '${source}' },
    gridPos: { x: (index % 2) * 12, y: Math.floor(index / 2) * 8, w: 12, h: 8 },
    fieldConfig: { defaults: { unit, min: 0 }, overrides: [] },
    targets: Object.entries(targets).map(([legendFormat, expr], letter) => ({
      refId: String.fromCharCode(65 + letter),
      expr,
      legendFormat,
    })),
  };
}
