// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What other rules join with: one series a node.
{
  prometheusRules+:: {
    local c = $._config,
    local q = (import '../lib/promql.libsonnet').new(c),
    groups+: [{
      name: 'nccl.agents.rules',
      interval: '%ds' % c.evaluationSeconds,
      rules: [
        {
          record: 'instance:nccl_bpftrace_heartbeat:age_seconds',
          expr: 'time() - max by (%s) (%s)'
                % [q.node, q.s('nccl_bpftrace_heartbeat_timestamp_seconds')],
        },
        {
          // Whose agent lives, by each cluster that its series name: without --cluster, and where
          // Prometheus names none, only a job's series may name one (SLURM_CLUSTER_NAME).
          record: 'instance:nccl_bpftrace_agent:alive',
          local age = 'instance:nccl_bpftrace_heartbeat:age_seconds',
          expr: |||
            %s < %d
            or
            group by (%s) (%s)
            and on (%s)
            %s{%s=""} < %d
          ||| % [
            age,
            c.agentStaleSeconds,
            q.node,
            q.s('nccl_communicator_info', c.clusterLabel + '!=""'),
            c.nodeLabel,
            age,
            c.clusterLabel,
            c.agentStaleSeconds,
          ],
        },
        {
          // Its host's name for each agent, and never two of them: a join must not fail.
          record: 'instance:nccl_node:info',
          expr: 'topk by (%s) (1, group by (%s, node) (%s))'
                % [q.node, q.node, q.s('nccl_communicator_info')],
        },
      ],
    }],
  },
}
