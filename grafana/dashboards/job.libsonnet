// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One job: who waits for whom, how fast its operations are, what went wrong and when.
{
  grafanaDashboards+:: {
    local c = $._config,
    local p = import '../lib/panels.libsonnet',
    local q = (import '../lib/promql.libsonnet').new(c),
    local states = import '../lib/states.libsonnet',
    local cluster = '%s=~"$cluster"' % c.clusterLabel,
    local and(a, b) = if b == '' then a else a + ',' + b,
    local inJob(matchers='') = and(cluster + ',job_id=~"$job_id"', matchers),
    local inComm(matchers='') = and(inJob('comm=~"$comm"'), matchers),
    local job(name, matchers='') = q.s(name, inJob(matchers)),
    local comm(name, matchers='') = q.s(name, inComm(matchers)),
    local rate(series) = 'rate(%s[$__rate_interval])' % series,
    local seconds = 'nccl_timed_seconds_total',
    local bandwidth(by, matchers='') =
      'sum by (%s) (%s)\n/\nsum by (%s) (%s)' % [
        by,
        rate(job('nccl_timed_bus_bytes_total', matchers)),
        by,
        rate(job(seconds, matchers)),
      ],
    local histogram(x, by, name) =
      'histogram_quantile(%g, sum by (%s) (%s))' % [x, by, rate(job(name + '_bucket'))],
    local percentiles(by, name, legend) = [
      p.target(histogram(x, by, name), 'P%d%s' % [x * 100, legend])
      for x in [0.5, 0.95, 0.99]
    ],
    // Each rank with its node's name.
    local ranks(expr) =
      'sum by (%s, comm, rank, node) (\n%s\n)' % [q.cluster, q.indent(
        '%s\n* on (%s) group_left (node)\ntopk by (%s) (1, %s)'
        % [expr, q.rank, q.rank, comm('nccl_communicator_info')]
      )],
    local commName = q.inCluster + '{{comm}}',
    local commOperation = q.cluster + ', comm, operation',
    local rankName = commName + ' rank {{rank}} {{node}}',
    local late = ranks(rate(comm('nccl_operation_lateness_seconds_total'))),
    // The number of the worst state that any node is in.
    local stateNumber = 'max by (%s, comm) (\n%s\n)' % [q.cluster, std.join('\n  or\n', [
      '  (%s == 1) * %d' % [comm('nccl_communicator_state', 'state="%s"' % states[i][0]), i]
      for i in std.range(0, std.length(states) - 1)
    ])],

    'nccl-job.json': p.dashboard(
      c,
      'nccl-bpftrace-job',
      'NCCL / Job',
      'One job: who waits for whom, how fast its operations are, what went wrong and when.',
      [
        p.variable('cluster', 'Cluster', 'label_values(%s, %s)' % [q.s('nccl_communicator_info'), c.clusterLabel]),
        p.variable('job_id', 'Job', 'label_values(%s, job_id)' % q.s('nccl_communicator_info', cluster)),
        p.variable('comm', 'Communicator', 'label_values(%s, comm)' % job('nccl_communicator_info')),
      ],
      [
        ['Verdict', [
          p.timeline(
            'State of each communicator',
            'The worst that any node says of it. Each agent judges the ranks of its own node.',
            'none',
            [p.target(stateNumber, commName)],
            texts=states,
          ),
          p.timeseries(
            'Operations behind the first rank',
            'Where nobody has called for a while: how far a rank is behind the first one of its communicator. '
            + 'Nothing here is how it should be.',
            'none',
            [p.target(
              'max by (%s, rank) (rank_operation:nccl_operation_sequence:behind{%s})' % [commOperation, inComm()],
              commName + ' rank {{rank}} {{operation}}'
            )],
          ),
          p.table(
            'Who is waited for',
            'The same ranks now, and where they run.',
            'none',
            'max by (%s, rank, node, gpu, pid) (\n%s\n)' % [commOperation, q.indent(
              'rank_operation:nccl_operation_sequence:behind{%s}\n* on (%s) group_left (node, gpu, pid)\ntopk by (%s) (1, %s)'
              % [inComm(), q.rank, q.rank, comm('nccl_communicator_info')]
            )],
            [[c.clusterLabel, 'Cluster'], ['comm', 'Communicator'], ['rank', 'Rank'], ['node', 'Node'], ['gpu', 'GPU'], ['pid', 'Process'], ['operation', 'Operation']],
            'Behind',
            12,
          ),
          p.timeseries(
            'Sequence number, first and last rank',
            'Scrapes are not simultaneous: in a job that runs the lines differ a little. Far apart and level: somebody is missing.',
            'none',
            [
              p.target('max by (%s, comm, operation) (%s)' % [q.cluster, comm('nccl_operation_sequence', 'operation=~"%s"' % q.any(c.collectives))], commName + ' {{operation}} first'),
              p.target('min by (%s, comm, operation) (%s)' % [q.cluster, comm('nccl_operation_sequence', 'operation=~"%s"' % q.any(c.collectives))], commName + ' {{operation}} last'),
            ],
          ),
          p.timeseries(
            'Since the last call',
            'On each communicator, by any of its ranks.',
            's',
            [p.target('time() - max by (%s, comm) (%s)' % [q.cluster, comm('nccl_last_operation_timestamp_seconds')], commName)],
          ),
          p.timeseries(
            'In flight',
            'Launches that are not known to be done, of each communicator; needs the plugin.',
            'none',
            [p.target('sum by (%s, comm) (%s)' % [q.cluster, comm('nccl_operations_in_flight')], commName)],
          ),
          p.timeseries(
            'Oldest operation in flight',
            'How long ago it was launched; needs the plugin.',
            's',
            [p.target('time() - min by (%s, comm) (%s)' % [q.cluster, comm('nccl_oldest_in_flight_start_timestamp_seconds')], commName)],
          ),
        ]],
        ['Who is late', [
          p.barGauge(
            'Ranks by lateness',
            'Share of the time by which a rank calls behind the first one of its node.',
            'percentunit',
            [p.now('topk(20, %s)' % late, rankName)],
            thresholds=[[null, 'green'], [c.lateShare, 'orange'], [4 * c.lateShare, 'red']],
          ),
          p.barGauge(
            'Ranks that come last',
            'How often in a second a rank is the last one of its node, by more than a millisecond.',
            'cps',
            [p.now('topk(20, %s)' % ranks(rate(comm('nccl_operations_last_arrival_total'))), rankName)],
          ),
          p.timeline(
            'Lateness of each rank',
            'The same over time: one row a rank, the redder the later.',
            'percentunit',
            [p.target('topk(64, %s)' % late, rankName)],
            thresholds=[[null, 'green'], [c.lateShare / 5, 'yellow'], [c.lateShare, 'orange'], [4 * c.lateShare, 'red']],
          ),
          p.heatmap(
            'Calls by their lateness',
            'How many calls came how long after the first one of their node.',
            's',
            'sum by (le) (increase(%s[$__rate_interval]))' % job('nccl_operation_lateness_seconds_bucket'),
          ),
          p.timeseries(
            'Quantiles of lateness',
            "From the first call of an operation on a node to each rank's call of it.",
            's',
            percentiles('le', 'nccl_operation_lateness_seconds', ''),
          ),
        ]],
        ['Speed', [
          p.timeseries(
            'Bus bandwidth by operation and size',
            "nccl-tests' busbw, a mean over the job's GPUs. A time includes waiting for the other ranks.",
            'Bps',
            [p.target(bandwidth('operation, size'), '{{operation}} {{size}}')],
          ),
          p.timeseries(
            'Bus bandwidth by algorithm and protocol',
            'Operations with both; sends and receives have neither.',
            'Bps',
            [p.target(bandwidth('operation, algorithm, protocol', 'algorithm!=""'), '{{operation}} {{algorithm}} {{protocol}}')],
          ),
          p.timeseries(
            'Bus bandwidth within a node (NVLink only)',
            'Communicators whose ranks are all on one node.',
            'Bps',
            [p.target(bandwidth('operation, size', 'scope="node"'), '{{operation}} {{size}}')],
          ),
          p.timeseries(
            'Bus bandwidth over the network',
            'Communicators with ranks on more than one node.',
            'Bps',
            [p.target(bandwidth('operation, size', 'scope="network"'), '{{operation}} {{size}}')],
          ),
          p.timeseries(
            'GPU time of operations',
            '50th, 95th and 99th percentile of timed launches.',
            's',
            percentiles('operation, le', 'nccl_operation_duration_seconds', ' {{operation}}'),
          ),
          p.timeseries(
            'Queue delay',
            "From the call on the host to the start on the GPU: the stream's earlier work, and the rest of the group.",
            's',
            percentiles('le', 'nccl_operation_queue_seconds', ''),
          ),
          p.timeseries(
            'Calls',
            'Every call is counted. captured: into a CUDA graph, not run; replayed: run by the launch of a graph.',
            'ops',
            [p.target('sum by (operation, mode) (%s)' % rate(comm('nccl_operations_total')), '{{operation}} {{mode}}')],
          ),
          p.timeseries(
            'Bytes called for',
            "In the sense of nccl-tests' size column.",
            'Bps',
            [p.target('sum by (operation) (%s)' % rate(comm('nccl_operation_bytes_total', 'mode!="captured"')), '{{operation}}')],
            stacked=true,
          ),
          p.timeseries(
            'Timed operations',
            'How many in a second the times above rest on.',
            'ops',
            [p.target('sum by (operation, size) (%s)' % rate(job('nccl_timed_operations_total')), '{{operation}} {{size}}')],
          ),
          p.timeseries(
            'Share of launches that are timed',
            'Over the last interval of each agent; the mean, and the GPU with the least.',
            'percentunit',
            [
              p.target('avg(%s)' % job('nccl_bpftrace_timing_sample_ratio'), 'mean'),
              p.target('min(%s)' % job('nccl_bpftrace_timing_sample_ratio'), 'least'),
            ],
          ),
        ]],
        ['Anomalies', [
          p.timeline(
            'Alerts',
            'Those of this job that fired, one row each.',
            'none',
            [p.target('max by (%s, alertname, comm, rank, node) (ALERTS{%s,alertstate="firing",alertname=~"NCCL.*"})' % [q.cluster, inJob()], q.inCluster + '{{alertname}} {{comm}} {{rank}} {{node}}')],
            thresholds=[[null, 'red']],
          ),
          p.timeseries(
            'Errors and aborts',
            "By NCCL's name, since the tracer started. ncclCommAbort: it was aborted.",
            'none',
            [p.target('sum by (%s, comm, result) (%s)' % [q.cluster, comm('nccl_errors_total')], commName + ' {{result}}')],
            8,
          ),
          p.timeseries(
            'Mismatches',
            'Calls that differ from what other ranks of the node called at the same sequence number, since the tracer started.',
            'none',
            [p.target('sum by (%s, comm, kind) (%s)' % [q.cluster, comm('nccl_mismatches_total')], commName + ' {{kind}}')],
            8,
          ),
          p.timeseries(
            'Signatures',
            'How many different last calls the ranks of a communicator have. At rest one is how it should be; in a job that runs scrapes differ.',
            'none',
            [p.target(
              'count by (%s) (count by (%s, signature) (count_values by (%s) ("signature", %s)))'
              % [commOperation, commOperation, commOperation, comm('nccl_operation_signature')],
              commName + ' {{operation}}'
            )],
            8,
          ),
        ]],
        ['What it is', [
          p.table(
            'Ranks',
            'Communicators and their ranks.',
            'none',
            comm('nccl_communicator_info'),
            [[c.clusterLabel, 'Cluster'], ['comm', 'Communicator'], ['comm_name', 'Name'], ['rank', 'Rank'], ['nranks', 'Ranks'], ['n_nodes', 'Nodes'], ['node', 'Node'], ['gpu', 'GPU'], ['UUID', 'UUID'], ['pid', 'Process'], ['identity', 'Identity'], ['timing', 'Timing']],
          ),
          p.table(
            'Processes',
            'What is known of the processes.',
            'none',
            job('nccl_bpftrace_process_info'),
            [[c.clusterLabel, 'Cluster'], ['job_id', 'Job'], [c.nodeLabel, 'Scraped as'], ['pid', 'Process'], ['command', 'Command'], ['local_rank', 'Local rank'], ['slurm_step', 'Step'], [c.namespaceLabel, 'Namespace'], [c.podLabel, 'Pod'], ['container', 'Container'], ['UUID', 'UUID'], ['nccl_version', 'NCCL'], ['plugin', 'Plugin']],
          ),
        ]],
      ],
    ),
  },
}
