// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// GPU times, bandwidth and lateness: summed up before anything is divided or taken a quantile of.
{
  prometheusRules+:: {
    local c = $._config,
    local q = (import '../lib/promql.libsonnet').new(c),
    local shape = 'operation, size, scope, algorithm, protocol',
    local rate(metric, matchers='') = 'rate(%s[%s])' % [q.s(metric, matchers), c.rateRange],
    local sum(by, what) = 'sum by (%s) (%s)' % [by, what],

    groups+: [{
      name: 'nccl.times.rules',
      interval: '%ds' % c.evaluationSeconds,
      rules: [
        {
          record: 'job_operation:nccl_operation_duration_seconds_bucket:rate',
          expr: sum(q.job + ', operation, le', rate('nccl_operation_duration_seconds_bucket')),
        },
        {
          record: 'operation:nccl_operation_duration_seconds_bucket:rate',
          expr: sum(q.cluster + ', operation, le',
                    'job_operation:nccl_operation_duration_seconds_bucket:rate'),
        },
        {
          record: 'instance_job_shape:nccl_timed_bus_bytes:rate',
          expr: sum('%s, job_id, %s' % [q.node, shape], rate('nccl_timed_bus_bytes_total')),
        },
        {
          record: 'instance_job_shape:nccl_timed_seconds:rate',
          expr: sum('%s, job_id, %s' % [q.node, shape], rate('nccl_timed_seconds_total')),
        },
        {
          record: 'job_shape:nccl_timed_bus_bytes:rate',
          expr: sum('%s, %s' % [q.job, shape], 'instance_job_shape:nccl_timed_bus_bytes:rate'),
        },
        {
          record: 'job_shape:nccl_timed_seconds:rate',
          expr: sum('%s, %s' % [q.job, shape], 'instance_job_shape:nccl_timed_seconds:rate'),
        },
        // The baselines, without the job: what a shape had last week. A node's own links carry
        // scope="node"; what crosses nodes is the cluster's.
        {
          record: 'node_shape:nccl_timed_bus_bytes:rate',
          expr: sum('%s, %s' % [q.node, shape],
                    'instance_job_shape:nccl_timed_bus_bytes:rate{scope="node"}'),
        },
        {
          record: 'node_shape:nccl_timed_seconds:rate',
          expr: sum('%s, %s' % [q.node, shape],
                    'instance_job_shape:nccl_timed_seconds:rate{scope="node"}'),
        },
        {
          record: 'cluster_shape:nccl_timed_bus_bytes:rate',
          expr: sum('%s, %s' % [q.cluster, shape],
                    'job_shape:nccl_timed_bus_bytes:rate{scope="network"}'),
        },
        {
          record: 'cluster_shape:nccl_timed_seconds:rate',
          expr: sum('%s, %s' % [q.cluster, shape],
                    'job_shape:nccl_timed_seconds:rate{scope="network"}'),
        },
        {
          // In a collective all end together: who comes late has the shortest time.
          record: 'instance_job_operation_size:nccl_operation_duration_seconds:mean',
          local by = '%s, job_id, operation, size' % q.node,
          local matchers = 'scope="network",operation=~"%s"' % q.any(c.symmetric),
          expr: '%s\n/\n(%s > 0)' % [
            sum(by, rate('nccl_operation_duration_seconds_sum', matchers)),
            sum(by, rate('nccl_operation_duration_seconds_count', matchers)),
          ],
        },
        {
          record: 'job_operation_size:nccl_operation_duration_seconds:median',
          expr: 'quantile by (%s, operation, size) (0.5, %s)' % [
            q.job,
            'instance_job_operation_size:nccl_operation_duration_seconds:mean',
          ],
        },
        {
          // The share of the time that the others of its node wait for the latest rank of a job.
          record: 'job:nccl_operation_lateness_seconds:max_rate',
          expr: 'max by (%s) (%s)' % [q.job, rate('nccl_operation_lateness_seconds_total')],
        },
        {
          record: 'job_operation:nccl_operation_bytes:rate',
          expr: sum(q.job + ', operation',
                    rate('nccl_operation_bytes_total', 'mode!="captured"')),
        },
      ],
    }],
  },
}
