// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// P0: communication has stopped, or cannot go on.
{
  prometheusAlerts+:: {
    local c = $._config,
    local q = (import '../lib/promql.libsonnet').new(c),
    local a = import '../lib/alert.libsonnet',
    local jobComm = q.job + ', comm',
    local state(names) = q.fresh(q.s('nccl_communicator_state', 'state=~"%s"' % names) + ' == 1'),

    groups+: [{
      name: 'nccl.stopped',
      interval: '%ds' % c.evaluationSeconds,
      rules: [
        a.new(
          c,
          'NCCLCommunicatorStuck',
          'P0',
          'job',
          'count by (%s) (\n%s\n)' % [jobComm, q.indent(state('stuck'))],
          c.stuckFor,
          'Communicator ' + a.comm + ' of ' + a.job + ' is stuck.',
          'Its agents say so for {{ $value }} of its ranks: some have called and others have not, or a GPU '
          + 'does not finish. Which rank it is: NCCLRankBehind of the same communicator, or '
          + '`nccl-bpftrace diagnose` on its nodes.',
        ),
        a.new(
          c,
          'NCCLRankBehind',
          'P0',
          'job',
          q.withRank('topk by (%s) (%d, rank_operation:nccl_operation_sequence:behind)'
                     % [q.commOperation, c.culprits]),
          c.stuckFor,
          'Communicator ' + a.comm + ' of ' + a.job + ' waits for ' + a.who + '.',
          'Nobody calls any more, and this rank is {{ $value }} {{ $labels.operation }} behind the first '
          + 'one of the communicator. Run `nccl-bpftrace diagnose` on {{ $labels.node }}.',
        ),
        a.new(
          c,
          'NCCLRankVanished',
          'P0',
          'job',
          q.withLastNode('topk by (%s) (%d, rank_operation:nccl_operation_sequence:vanished_behind)'
                         % [q.commOperation, c.culprits], c.vanishedRange),
          c.stuckFor,
          'Rank {{ $labels.rank }} of communicator ' + a.comm + ' of ' + a.job
          + ' is gone, and others wait for it.',
          'It was last seen on {{ $labels.node }}, {{ $value }} {{ $labels.operation }} behind those that are '
          + 'left, and nobody calls any more: its process or its node has ended.',
        ),
        a.new(
          c,
          'NCCLRanksMissing',
          'P0',
          'job',
          // Others wait: that is what tells it from a job of which some nodes have no agent.
          |||
            max by (%s) (
              %s
            )
            and on (%s) comm:nccl_communicator_ranks:incomplete
            unless on (%s) rank_operation:nccl_operation_sequence:behind
          ||| % [
            jobComm,
            std.strReplace(state('stuck|aborted'), '\n', '\n  '),
            q.comm,
            q.comm,
          ],
          c.missingFor,
          'Ranks of communicator ' + a.comm + ' of ' + a.job + ' are missing, and others wait.',
          'Fewer ranks are seen than it has, those that are seen wait, and none of them is behind: the '
          + 'one they wait for ended, or runs on a node without an agent, or was never started.',
        ),
        a.new(
          c,
          'NCCLOperationNotFinished',
          'P0',
          'job',
          q.withRank(
            'topk by (%s) (%d,\n%s\n)' % [
              q.comm,
              c.culprits,
              q.indent(q.fresh('time() - %s > %d' % [
                q.s('nccl_oldest_in_flight_start_timestamp_seconds'),
                c.inFlightSeconds,
              ])),
            ]
          ),
          c.stuckFor,
          'An operation of communicator ' + a.comm + ' of ' + a.job + ' has been in flight for '
          + '{{ $value | humanizeDuration }}.',
          'On the GPU, or in its queue, of ' + a.who + ': it was launched and is not known to be done.',
        ),
        a.new(
          c,
          'NCCLCommunicatorFailed',
          'P0',
          'job',
          q.withNode('max by (%s, job_id, comm, state) (\n%s\n)'
                     % [q.node, q.indent(state('aborted|error'))]),
          '0s',
          'Communicator {{ $labels.comm }} of ' + a.job + ': {{ $labels.state }} on {{ $labels.node }}.',
          'aborted: some ranks aborted it, or ended while others wait for them. error: NCCL reports an '
          + 'asynchronous error; nccl_errors_total has its name. Run `nccl-bpftrace diagnose` on {{ $labels.node }}.',
        ),
        a.new(
          c,
          'NCCLMismatch',
          'P0',
          'job',
          q.withNode('max by (%s, job_id, comm) (\n%s\n)'
                     % [q.node, q.indent(state('mismatch'))]),
          '0s',
          'Ranks of communicator {{ $labels.comm }} of ' + a.job + ' on {{ $labels.node }} disagree on a call.',
          'They called something else at one sequence number: the job hangs, or its data are wrong. '
          + 'nccl_mismatches_total says in what they differ, `nccl-bpftrace diagnose` on {{ $labels.node }} who.',
        ),
        a.new(
          c,
          'NCCLMismatchAcrossNodes',
          'P0',
          'job',
          q.withRank('topk by (%s) (%d, rank_operation:nccl_operation_signature:odd * 0 + 1)'
                     % [q.commOperation, c.culprits]),
          c.stuckFor,
          'Communicator ' + a.comm + ' of ' + a.job + ': ' + a.who + ' called another {{ $labels.operation }} than '
          + 'the others.',
          'All ranks stand at one sequence number, nobody calls any more, and this rank called with another '
          + 'count, data type, reduction or root than most.',
        ),
      ],
    }],
  },
}
