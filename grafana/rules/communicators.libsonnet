// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Verdicts over nodes: each agent judges the ranks of its own node, these compare all of them.
// Scrapes are not simultaneous, so ranks are compared only where nobody has called for a while;
// where all goes well the rank_* rules give nothing, whatever the size of the fleet.
{
  prometheusRules+:: {
    local c = $._config,
    local q = (import '../lib/promql.libsonnet').new(c),
    local sequence = q.s('nccl_operation_sequence', q.collective),
    local signature = q.s('nccl_operation_signature', q.collective),
    // Whose last call is younger. A communicator on which no call was seen stands still.
    local still(expr) =
      '%s\nunless on (%s)\ntime() - comm:nccl_last_operation_timestamp_seconds:max < %d'
      % [q.trim(expr), q.comm, c.stillSeconds],

    groups+: [{
      name: 'nccl.communicators.rules',
      interval: '%ds' % c.evaluationSeconds,
      rules: [
        {
          record: 'comm:nccl_last_operation_timestamp_seconds:max',
          expr: 'max by (%s) (%s)'
                % [q.comm, q.s('nccl_last_operation_timestamp_seconds', q.named)],
        },
        {
          record: 'comm_operation:nccl_operation_sequence:max',
          expr: 'max by (%s) (%s)' % [q.commOperation, sequence],
        },
        {
          // How many operations a rank is behind the first one, where nobody moves.
          record: 'rank_operation:nccl_operation_sequence:behind',
          expr: q.fresh(still(|||
            (
              comm_operation:nccl_operation_sequence:max
              - on (%s) group_right ()
              %s
            ) > 0
          ||| % [q.commOperation, sequence])),
        },
        {
          // The same of ranks that are not there any more: they ended, or their node did. A rank
          // whose job or GPU has become known is there, only under other labels; and one of whose
          // numbers an agent that came anew knows less.
          record: 'rank_operation:nccl_operation_sequence:vanished_behind',
          expr: still(|||
            (
              comm_operation:nccl_operation_sequence:max
              - on (%s) group_right ()
              (
                last_over_time(%s[%s])
                unless on (%s, rank)
                %s
              )
            ) > 0
          ||| % [
            q.commOperation,
            sequence,
            c.vanishedRange,
            q.comm,
            q.s('nccl_communicator_info', q.named + ',rank!=""'),
          ]),
        },
        {
          // Ranks that stand at one number and did not call what most did there: the median
          // of the hashes is the majority's, where there is one.
          record: 'rank_operation:nccl_operation_signature:odd',
          expr: q.fresh(still(|||
            (
              %s
              != on (%s) group_left ()
              quantile by (%s) (0.5, %s)
            )
            and on (%s)
            max by (%s) (%s) == min by (%s) (%s)
          ||| % [
            signature,
            q.commOperation,
            q.commOperation,
            signature,
            q.commOperation,
            q.commOperation,
            sequence,
            q.commOperation,
            sequence,
          ])),
        },
        {
          // nranks is a label, so the count is made one to be compared with it.
          record: 'comm:nccl_communicator_ranks:seen',
          expr: 'count by (%s) (group by (%s, rank) (%s))'
                % [q.comm, q.comm, q.s('nccl_communicator_info', q.named + ',rank!=""')],
        },
        {
          record: 'comm:nccl_communicator_ranks:incomplete',
          expr: |||
            comm:nccl_communicator_ranks:seen
            and on (%s)
            (
              group by (%s, nranks) (%s)
              unless
              count_values by (%s) ("nranks", comm:nccl_communicator_ranks:seen)
            )
          ||| % [
            q.comm,
            q.comm,
            q.s('nccl_communicator_info', q.named + ',rank!="",nranks!=""'),
            q.comm,
          ],
        },
        {
          // Each communicator once, however many nodes and ranks it has.
          record: 'job_state:nccl_communicator_state:count',
          expr: 'count by (%s, state) (group by (%s, comm, state) (\n%s\n))'
                % [q.job, q.job, q.indent(q.fresh(q.s('nccl_communicator_state') + ' == 1'))],
        },
        {
          record: 'state:nccl_communicator_state:count',
          expr: 'sum by (%s, state) (job_state:nccl_communicator_state:count)' % q.cluster,
        },
      ],
    }],
  },
}
