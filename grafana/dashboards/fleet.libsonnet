// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The whole fleet, from recording rules alone: which job to look at.
{
  grafanaDashboards+:: {
    local c = $._config,
    local p = import '../lib/panels.libsonnet',
    local q = (import '../lib/promql.libsonnet').new(c),
    local cluster = '%s=~"$cluster"' % c.clusterLabel,
    local r(name, matchers='') = '%s{%s}' % [name, cluster + (if matchers == '' then '' else ',' + matchers)],
    local raw(name, matchers='') = q.s(name, cluster + (if matchers == '' then '' else ',' + matchers)),
    local lost = 'rate(%s[$__rate_interval])' % raw('nccl_bpftrace_events_lost_total'),
    local jobName = q.inCluster + '{{job_id}}',
    local quantile(x, by, series) =
      'histogram_quantile(%g, sum by (%s, le) (%s))' % [x, by, series],
    local durations = r('job_operation:nccl_operation_duration_seconds_bucket:rate'),
    local percentile(x) = p.timeseries(
      'P%d of GPU time by operation' % (x * 100),
      'Of launches of all jobs that were timed (sampled), over the window of the recording rules.',
      's',
      [p.target(quantile(x, 'operation', r('operation:nccl_operation_duration_seconds_bucket:rate')), '{{operation}}')],
      8,
    ),

    'nccl-fleet.json': p.dashboard(
      c,
      'nccl-bpftrace-fleet',
      'NCCL / Fleet',
      'All jobs: what stands still, who is slow, and whether the agents can be believed.',
      [p.variable('cluster', 'Cluster', 'label_values(%s, %s)' % [q.s('nccl_bpftrace_heartbeat_timestamp_seconds'), c.clusterLabel])],
      [
        ['Now', [
          p.stat(
            'Communicators by state',
            'Each communicator once, however many nodes it has; of nodes whose agent lives.',
            'none',
            [p.now('sum by (state) (%s)' % r('state:nccl_communicator_state:count'), '{{state}}')],
            12,
          ) + { options+: { textMode: 'value_and_name' } },
          p.stat(
            'Alerts firing',
            'NCCL alerts by priority. P0: communication stopped, or an agent is blind.',
            'none',
            [p.now('count by (priority) (ALERTS{%s,alertstate="firing",alertname=~"NCCL.*"})' % cluster, '{{priority}}')],
            6,
            [[null, 'red']],
          ) + { options+: { textMode: 'value_and_name' } },
          p.stat(
            'Agents',
            'Alive: their file is young enough to be believed.',
            'none',
            [
              p.now('count(%s < %d) or vector(0)' % [r('instance:nccl_bpftrace_heartbeat:age_seconds'), c.agentStaleSeconds], 'alive'),
              p.now('count(%s >= %d) or vector(0)' % [r('instance:nccl_bpftrace_heartbeat:age_seconds'), c.agentStaleSeconds], 'stale'),
            ],
            6,
          ),
          p.table(
            'What is firing',
            'Alerts of nccl-bpftrace. Their texts, and what to do, are in the runbooks.',
            'none',
            'max by (alertname, priority, job_id, comm, rank, node, %s, state, reason) (ALERTS{%s,alertstate="firing",alertname=~"NCCL.*"})'
            % [q.node, cluster],
            [['priority', 'Priority'], ['alertname', 'Alert'], [c.clusterLabel, 'Cluster'], ['job_id', 'Job'], ['comm', 'Communicator'], ['rank', 'Rank'], ['node', 'Node'], [c.nodeLabel, 'Scraped as'], ['state', 'State'], ['reason', 'Reason']],
          ),
        ]],
        ['Operations', [
          percentile(0.5),
          percentile(0.95),
          percentile(0.99),
          p.timeseries(
            'Bytes called for, by operation',
            "In the sense of nccl-tests' size column; every call is counted, none sampled.",
            'Bps',
            [p.target('sum by (operation) (%s)' % r('job_operation:nccl_operation_bytes:rate'), '{{operation}}')],
            stacked=true,
          ),
          p.timeseries(
            'Bus bandwidth by operation',
            "Bus bytes by GPU time, nccl-tests' busbw, a mean over all GPUs that were timed. "
            + 'node: communicators within one node (NVLink); network: over more.',
            'Bps',
            [p.target(
              'sum by (operation, scope) (%s)\n/\nsum by (operation, scope) (%s)'
              % [r('job_shape:nccl_timed_bus_bytes:rate'), r('job_shape:nccl_timed_seconds:rate')],
              '{{operation}} {{scope}}'
            )],
          ),
        ]],
        ['Worst jobs', [
          p.barGauge(
            'Jobs that wait most for one rank',
            'Share of the time by which the latest rank of a job calls behind the first one of its node.',
            'percentunit',
            [p.now('topk(10, max by (%s) (%s))' % [q.job, r('job:nccl_operation_lateness_seconds:max_rate')], jobName)],
            thresholds=[[null, 'green'], [c.lateShare, 'orange']],
          ),
          p.barGauge(
            'Jobs with the longest operations',
            '99th percentile of GPU time over all operations of a job.',
            's',
            [p.now('topk(10, %s)' % quantile(0.99, q.job, durations), jobName)],
          ),
          p.table(
            'Jobs with communicators in trouble',
            'How many communicators of a job are neither healthy nor idle.',
            'none',
            'sum by (%s, state) (%s) > 0' % [q.job, r('job_state:nccl_communicator_state:count', 'state!~"healthy|idle|unknown"')],
            [[c.clusterLabel, 'Cluster'], ['job_id', 'Job'], ['state', 'State']],
            'Communicators',
            12,
          ),
          p.barGauge(
            'Jobs that call for most bytes',
            'All ranks of a job together.',
            'Bps',
            [p.now('topk(10, sum by (%s) (%s))' % [q.job, r('job_operation:nccl_operation_bytes:rate')], jobName)],
          ),
        ]],
        ['Over time', [
          p.timeseries(
            'Communicators by state, over time',
            'Each communicator once, however many nodes it has.',
            'none',
            [p.target('sum by (state) (%s)' % r('state:nccl_communicator_state:count'), '{{state}}')],
            stacked=true,
          ),
          p.timeseries(
            'NCCL processes',
            'traced: probes are set; plugin: they have the cooperating plugin; unsupported: they cannot be traced.',
            'none',
            [p.target('sum by (state) (%s)' % raw('nccl_bpftrace_processes'), '{{state}}')],
          ),
        ]],
        ['Health of the agents', [
          p.timeseries(
            'Oldest heartbeat',
            'Age of the oldest file of all nodes. Beyond %d s what it says is believed no more.' % c.agentStaleSeconds,
            's',
            [p.target('max(%s)' % r('instance:nccl_bpftrace_heartbeat:age_seconds'), 'oldest')],
            8,
          ),
          p.timeseries(
            'Records lost',
            'By reason, over all nodes: README, Loss.',
            'cps',
            [
              p.target('sum(%s)' % lost, 'in all'),
              p.target('sum by (reason) (%s) > 0' % lost, '{{reason}}'),
            ],
            8,
          ),
          p.timeseries(
            'Processor time of agents',
            'The busiest five.',
            'percentunit',
            [p.target('topk(5, max by (%s) (rate(%s[$__rate_interval])))' % [q.node, raw('nccl_bpftrace_cpu_seconds_total')], q.onNode)],
            8,
          ),
        ]],
      ],
    ),
  },
}
