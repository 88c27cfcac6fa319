// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// P0: an agent sees nothing, or its word cannot be trusted. Without these, silence looks like health.
{
  prometheusAlerts+:: {
    local c = $._config,
    local q = (import '../lib/promql.libsonnet').new(c),
    local a = import '../lib/alert.libsonnet',
    local heartbeat = q.s('nccl_bpftrace_heartbeat_timestamp_seconds'),
    local at = '{{ $labels.%s }}' % c.nodeLabel,

    groups+: [{
      name: 'nccl.blind',
      interval: '%ds' % c.evaluationSeconds,
      rules: [
        a.new(
          c,
          'NCCLAgentStale',
          'P0',
          'agent',
          'instance:nccl_bpftrace_heartbeat:age_seconds > %d' % c.agentStaleSeconds,
          c.agentStaleFor,
          'The nccl-bpftrace agent of ' + at + ' has written nothing for {{ $value | humanizeDuration }}.',
          'It is dead or cannot write. What Prometheus has of this node is old, and no rule believes it.',
        ),
        a.new(
          c,
          'NCCLAgentGone',
          'P0',
          'agent',
          'group by (%s) (last_over_time(%s[%s]))\nunless on (%s)\n%s'
          % [q.node, heartbeat, c.agentGoneRange, q.node, heartbeat],
          c.agentGoneFor,
          'The nccl-bpftrace agent of ' + at + ' is not scraped any more.',
          'It was there within the last %s. The node or its node_exporter is down, or the file is gone '
          % c.agentGoneRange + 'or refused.',
        ),
        a.new(
          c,
          'NCCLTextfileRefused',
          'P0',
          'agent',
          |||
            max by (%s) (
              %s > 0
              or
              increase(%s[%s]) > 0
            )
            and on (%s)
            (
              group by (%s) (last_over_time(%s[1h]))
              or
              group by (%s) (last_over_time(%s[1h]))
            )
          ||| % [
            q.node,
            q.s('node_textfile_scrape_error'),
            q.s('promhttp_metric_handler_errors_total', 'cause="gathering"'),
            c.lossRange,
            q.node,
            q.node,
            heartbeat,
            // With --cluster our series have a label that node_exporter's own have not.
            c.nodeLabel,
            heartbeat,
          ],
          c.agentStaleFor,
          'node_exporter of ' + at + ' refuses series or files of its textfile directory.',
          'It answers as if all were well and leaves series out. Its log names the file; another file there may '
          + 'be the cause.',
        ),
        a.new(
          c,
          'NCCLCountsWrong',
          'P0',
          'agent',
          'sum by (%s, reason) (increase(%s[%s])) > 0' % [
            q.node,
            q.s('nccl_bpftrace_events_lost_total', 'reason=~"%s"' % q.any(c.hurtfulLosses)),
            c.lossRange,
          ],
          '0s',
          'The agent of ' + at + ' has lost calls: {{ $labels.reason }}.',
          '{{ $value | humanize }} in the last %s, of a kind with which the counts of operations are no longer ' % c.lossRange
          + 'exact.',
        ),
        a.new(
          c,
          'NCCLSightDegraded',
          'P0',
          'agent',
          'count by (%s) (\n%s\n)' % [
            q.node,
            q.indent(q.fresh(q.s('nccl_communicator_state', 'state="degraded_sight"') + ' == 1')),
          ],
          c.agentStaleFor,
          'The agent of ' + at + ' cannot judge: it loses records.',
          'For {{ $value }} ranks nothing that rests on absence is claimed, so a job that hangs there is not found '
          + 'by its agent.',
        ),
      ],
    }],
  },
}
