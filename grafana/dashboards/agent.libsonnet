// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Whether the agents can be believed, and what they cost.
{
  grafanaDashboards+:: {
    local c = $._config,
    local p = import '../lib/panels.libsonnet',
    local q = (import '../lib/promql.libsonnet').new(c),
    local cluster = '%s=~"$cluster"' % c.clusterLabel,
    local node = '%s,%s=~"$node"' % [cluster, c.nodeLabel],
    local s(name, matchers='') = q.s(name, if matchers == '' then node else node + ',' + matchers),
    local here = q.onNode,
    local by(labels) = std.join(', ', [q.node] + labels),
    local counter(title, description, name, labels=[], matchers='', width=8) =
      p.timeseries(
        title,
        description,
        'cps',
        [p.target(
          'sum by (%s) (rate(%s[$__rate_interval]))' % [by(labels), s(name, matchers)],
          std.join(' ', [here] + ['{{%s}}' % label for label in labels])
        )],
        width,
      ),
    // Every reason is there from the start: those that count nothing are not drawn.
    local reasons(title, description, name) =
      local rate(labels) = 'sum by (%s) (rate(%s[$__rate_interval]))' % [by(labels), s(name)];
      p.timeseries(title, description, 'cps', [
        p.target(rate([]), here + ' in all'),
        p.target(rate(['reason']) + ' > 0', here + ' {{reason}}'),
      ], 8),
    local gauge(title, description, unit, name, how='max', width=8) =
      p.timeseries(title, description, unit, [p.target('%s by (%s) (%s)' % [how, q.node, s(name)], here)], width),
    local share(title, description, name, label) =
      p.timeseries(title, description, 'none', [p.target('count by (%s) (%s)' % [label, s(name)], '{{%s}}' % label)], 8),

    'nccl-agent.json': p.dashboard(
      c,
      'nccl-bpftrace-agent',
      'NCCL / Agent health',
      'Whether the agents can be believed, and what they cost.',
      [
        p.variable('cluster', 'Cluster', 'label_values(%s, %s)' % [q.s('nccl_bpftrace_heartbeat_timestamp_seconds'), c.clusterLabel]),
        p.variable('node', 'Node', 'label_values(%s, %s)' % [q.s('nccl_bpftrace_heartbeat_timestamp_seconds', cluster), c.nodeLabel]),
      ],
      [
        ['Alive', [
          p.timeseries(
            'Age of the heartbeat',
            'By the time in the file. Beyond %d s the agent is dead for all rules.' % c.agentStaleSeconds,
            's',
            [p.target('time() - max by (%s) (%s)' % [q.node, s('nccl_bpftrace_heartbeat_timestamp_seconds')], here)],
            8,
          ),
          p.timeseries(
            'Age of the file',
            "By node_exporter's time of it.",
            's',
            [p.target('time() - max by (%s) (%s)' % [q.node, s('node_textfile_mtime_seconds', 'file=~".*/nccl_bpftrace[.]prom"')], here)],
            8,
          ),
          p.timeseries(
            'Refused by node_exporter',
            'Files that do not parse, and series left out while gathering. 0 is how it should be.',
            'none',
            [
              p.target('max by (%s) (%s)' % [q.node, s('node_textfile_scrape_error')], here + ' files'),
              p.target('sum by (%s) (increase(%s[$__rate_interval]))' % [q.node, s('promhttp_metric_handler_errors_total', 'cause="gathering"')], here + ' gathering'),
            ],
            8,
          ),
          p.timeseries(
            'NCCL processes',
            'traced: probes are set; plugin: they have the cooperating plugin; unsupported: they cannot be traced.',
            'none',
            [p.target('sum by (state) (%s)' % s('nccl_bpftrace_processes'), '{{state}}')],
            8,
          ),
          share('Plugin of processes', 'active: the agent hears of it; idle: it is there; absent: no GPU times.', 'nccl_bpftrace_process_info', 'plugin'),
          share('Communicators by identity', 'observed: their making was seen; recovered: read from the process; unknown: the rank is not known.', 'nccl_communicator_info', 'identity'),
          p.table(
            'Versions',
            'What runs where.',
            'none',
            s('nccl_bpftrace_build_info'),
            [[c.clusterLabel, 'Cluster'], [c.nodeLabel, 'Scraped as'], ['version', 'nccl-bpftrace'], ['libbpf', 'libbpf'], ['kernel', 'Kernel']],
          ),
        ]],
        ['Loss', [
          counter('Records', 'Received from the kernel.', 'nccl_bpftrace_events_total'),
          reasons('Records lost', 'By reason: README, Loss. Nothing is how it should be.', 'nccl_bpftrace_events_lost_total'),
          counter('Ranks and calls without a verdict', 'There was no room for them.', 'nccl_bpftrace_unjudged_total'),
          counter('Graph launches unresolved', 'It is not known what NCCL operations they run: those are in no metric.', 'nccl_bpftrace_graph_launches_unresolved_total'),
          counter('Series left out', 'By --max-series; each is counted with every file.', 'nccl_bpftrace_series_suppressed_total'),
          counter('Calls without a size', 'Their data type has no known size, so they add no bytes.', 'nccl_operations_unknown_datatype_total', ['operation']),
        ]],
        ['GPU times', [
          p.timeseries(
            'Share of launches that are timed',
            'Over the last interval, a mean over the jobs and GPUs of a node.',
            'percentunit',
            [p.target('avg by (%s) (%s)' % [q.node, s('nccl_bpftrace_timing_sample_ratio')], here)],
            8,
          ),
          reasons('Times refused', 'By reason: README, GPU time.', 'nccl_bpftrace_invalid_timings_total'),
          reasons("Not in files for NVIDIA's dashboards", "By reason: README, For NVIDIA's dashboards.", 'nccl_bpftrace_inspector_omitted_total'),
          share('Communicators by timing', 'How their GPU times come; none: they do not.', 'nccl_communicator_info', 'timing'),
        ]],
        ['Cost', [
          p.timeseries(
            'Processor time',
            'Of one core.',
            'percentunit',
            [p.target('max by (%s) (rate(%s[$__rate_interval]))' % [q.node, s('nccl_bpftrace_cpu_seconds_total')], here)],
          ),
          gauge('Resident memory', "The process's own; BPF maps are the kernel's.", 'bytes', 'nccl_bpftrace_resident_memory_bytes', width=12),
        ]],
      ],
    ),
  },
}
