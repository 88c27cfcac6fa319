// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// P2: slower than last week; and what is missing from the numbers.
{
  prometheusAlerts+:: {
    local c = $._config,
    local q = (import '../lib/promql.libsonnet').new(c),
    local a = import '../lib/alert.libsonnet',
    local at = '{{ $labels.%s }}' % c.nodeLabel,
    local over(series, offset='') =
      'sum_over_time(%s[%s]%s)' % [series, c.driftRange, if offset == '' then '' else ' offset ' + offset],
    // A sum of rates, one each evaluation, is seconds of GPU time divided by the seconds between.
    local enough(level, offset) = '(%s > %s)' % [
      over(level + ':nccl_timed_seconds:rate', offset),
      q.number(c.driftMinSeconds / c.evaluationSeconds),
    ],
    local bandwidth(level, offset='') =
      '%s / %s' % [over(level + ':nccl_timed_bus_bytes:rate', offset), enough(level, offset)],
    local drift(level) =
      '(%s)\n/\n(%s)\n< %s'
      % [bandwidth(level), bandwidth(level, c.driftOffset), q.number(c.driftRatio)],
    local what = '{{ $labels.operation }} {{ $labels.size }}'
                 + '{{ with $labels.algorithm }} {{ . }}{{ end }}{{ with $labels.protocol }} {{ . }}{{ end }}',
    local increases(metric, matchers='') =
      'increase(%s[%s])' % [q.s(metric, matchers), c.lossRange],

    groups+: [{
      name: 'nccl.drift',
      interval: '%ds' % c.evaluationSeconds,
      rules: [
        a.new(
          c,
          'NCCLNodeBandwidthDrift',
          'P2',
          'job',
          drift('node_shape'),
          c.driftFor,
          'NCCL within ' + at + ' is slower than it was: ' + what + '.',
          'Bus bandwidth over the last %s is {{ $value | humanizePercentage }} of what the same shape had here %s ago: '
          % [c.driftRange, c.driftOffset] + 'NVLink, PCIe, clocks, or ranks that wait.',
        ),
        a.new(
          c,
          'NCCLNetworkBandwidthDrift',
          'P2',
          'job',
          drift('cluster_shape'),
          c.driftFor,
          'NCCL between nodes is slower than it was: ' + what + '.',
          'Bus bandwidth over the last %s is {{ $value | humanizePercentage }} of what the same shape had %s ago, over all jobs.'
          % [c.driftRange, c.driftOffset],
        ),
      ],
    }, {
      name: 'nccl.quality',
      interval: '%ds' % c.evaluationSeconds,
      rules: [
        a.new(
          c,
          'NCCLRecordsLost',
          'P2',
          'agent',
          'sum by (%s, reason) (%s) > 0' % [
            q.node,
            increases('nccl_bpftrace_events_lost_total', 'reason!~"%s"' % q.any(c.hurtfulLosses)),
          ],
          '0s',
          'The agent of ' + at + ' loses records: {{ $labels.reason }}.',
          '{{ $value | humanize }} in the last %s. Counts are exact; GPU times or the making and end of communicators '
          % c.lossRange + 'may be missing.',
        ),
        a.new(
          c,
          'NCCLSampleRatioLow',
          'P2',
          'agent',
          'avg by (%s) (%s) < %s'
          % [q.node, q.s('nccl_bpftrace_timing_sample_ratio'), q.number(c.sampleRatioMin)],
          c.qualityFor,
          'The agent of ' + at + ' times few launches: {{ $value | humanizePercentage }}.',
          'GPU times and bandwidth of this node rest on few samples.',
        ),
        a.new(
          c,
          'NCCLSeriesSuppressed',
          'P2',
          'agent',
          'sum by (%s) (%s) > 0' % [q.node, increases('nccl_bpftrace_series_suppressed_total')],
          '0s',
          'The agent of ' + at + ' leaves series out.',
          'There are more than --max-series; {{ $value | humanize }} were left out over all files of the last %s.'
          % c.lossRange,
        ),
        a.new(
          c,
          'NCCLRanksUnjudged',
          'P2',
          'agent',
          'sum by (%s) (%s) > 0' % [q.node, increases('nccl_bpftrace_unjudged_total')],
          '0s',
          'The agent of ' + at + ' has no room to judge all ranks.',
          '{{ $value | humanize }} ranks or calls of the last %s are in no verdict.' % c.lossRange,
        ),
        a.new(
          c,
          'NCCLProcessesUntraced',
          'P2',
          'agent',
          'sum by (%s) (%s) > 0' % [q.node, q.s('nccl_bpftrace_processes', 'state="unsupported"')],
          c.qualityFor,
          '{{ $value }} NCCL processes of ' + at + ' cannot be traced.',
          '`nccl-bpftrace ps` there says why for each.',
        ),
      ],
    }],
  },
}
