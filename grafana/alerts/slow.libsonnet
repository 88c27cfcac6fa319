// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// P1: it moves, and somebody is late or slow again and again.
{
  prometheusAlerts+:: {
    local c = $._config,
    local q = (import '../lib/promql.libsonnet').new(c),
    local a = import '../lib/alert.libsonnet',
    local nodeComm = '%s, job_id, comm' % q.node,
    local lateness = 'rate(%s[%s])' % [q.s('nccl_operation_lateness_seconds_total'), c.rateRange],
    local last = 'rate(%s[%s])' % [q.s('nccl_operations_last_arrival_total'), c.rateRange],
    local mean = 'instance_job_operation_size:nccl_operation_duration_seconds:mean',
    local median = 'job_operation_size:nccl_operation_duration_seconds:median',
    local shape = q.job + ', operation, size',

    groups+: [{
      name: 'nccl.slow',
      interval: '%ds' % c.evaluationSeconds,
      rules: [
        a.new(
          c,
          'NCCLRankLate',
          'P1',
          'job',
          q.withRank(q.fresh(
            |||
              %s > %s
              and
              %s
              > on (%s) group_left ()
              %s * sum by (%s) (%s)
            ||| % [
              lateness,
              q.number(c.lateShare),
              last,
              nodeComm,
              q.number(c.lastShare),
              nodeComm,
              last,
            ]
          )),
          c.lateFor,
          'Communicator ' + a.comm + ' of ' + a.job + ' waits again and again for ' + a.who + '.',
          'It calls late for {{ $value | humanizePercentage }} of the time, measured from the first rank of '
          + 'its node, and is the last one there more often than all others together.',
        ),
        a.new(
          c,
          'NCCLCommunicatorSlow',
          'P1',
          'job',
          q.withNode(
            'max by (%s, state) (\n%s\n)' % [
              nodeComm,
              q.indent(q.fresh(q.s('nccl_communicator_state', 'state=~"straggler|slow"') + ' == 1')),
            ]
          ),
          c.slowFor,
          'Communicator {{ $labels.comm }} of ' + a.job + ' on {{ $labels.node }}: {{ $labels.state }}.',
          'straggler: one rank of this node is late again and again. slow: every rank is slower than its own '
          + 'past. `nccl-bpftrace diagnose` on {{ $labels.node }} names it.',
        ),
        a.new(
          c,
          'NCCLNodeLate',
          'P1',
          'job',
          q.withNode(
            |||
              %s
              < on (%s) group_left ()
              (%s * %s)
              and
              %s
              < on (%s) group_left ()
              (%s - %s)
              and on (%s)
              count by (%s) (%s) >= %d
            ||| % [
              mean,
              shape,
              q.number(c.nodeLateRatio),
              median,
              mean,
              shape,
              median,
              q.number(c.nodeLateSeconds),
              shape,
              shape,
              mean,
              c.nodeLateMinNodes,
            ]
          ),
          c.lateFor,
          'The other nodes of ' + a.job + ' wait for {{ $labels.node }} in {{ $labels.operation }} {{ $labels.size }}.',
          'There it takes {{ $value | humanizeDuration }} of GPU time, less than %s of the median over the ' % q.number(c.nodeLateRatio)
          + "job's nodes. All end together, so the shortest time is that of the one that came last.",
        ),
      ],
    }],
  },
}
