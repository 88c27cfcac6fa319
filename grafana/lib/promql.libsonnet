// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Selectors, label lists and joins that rules and dashboards share.
{
  new(c):: {
    local q = self,
    local commas(labels) = std.join(', ', [label for label in labels if label != '']),

    // metric{selector,matchers}
    s(metric, matchers='')::
      '%s{%s}' % [metric, std.join(',', [m for m in [c.selector, matchers] if m != ''])],
    any(values):: std.join('|', values),

    cluster:: c.clusterLabel,
    node:: '%s, %s' % [c.clusterLabel, c.nodeLabel],
    comm:: commas([c.clusterLabel] + c.communicatorLabels),
    commOperation:: q.comm + ', operation',
    job:: '%s, job_id' % c.clusterLabel,
    // For legends: which cluster, and which node of it. A label that is not there is nothing.
    inCluster:: '{{%s}} ' % c.clusterLabel,
    onNode:: '{{%s}} {{%s}}' % [c.clusterLabel, c.nodeLabel],
    // A rank on its node, and all that its series are told apart by but the operation.
    rank:: commas([c.clusterLabel, c.nodeLabel, 'job_id', 'UUID', 'comm', 'rank']),

    // The hash is the communicator's everywhere; "unknown-PID-N" may be something else elsewhere.
    named:: 'comm!~"unknown.*"',
    collective:: q.named + ',operation=~"%s"' % q.any(c.collectives),

    // Of nodes whose agent lives: what a dead one said last stands in its file for ever.
    fresh(expr)::
      '%s\nand on (%s)\ninstance:nccl_bpftrace_agent:alive' % [q.trim(expr), q.node],

    // Adds the host's name.
    withNode(expr)::
      '(\n%s\n)\n* on (%s) group_left (node)\ninstance:nccl_node:info' % [q.indent(expr), q.node],

    // Of a node that may be gone.
    withLastNode(expr, range)::
      '(\n%s\n)\n* on (%s) group_left (node)\ntopk by (%s) (1, last_over_time(instance:nccl_node:info[%s]))'
      % [q.indent(expr), q.node, q.node, range],

    // Adds what is known of a rank: node, GPU, process. topk: whatever jobs claim, one a rank.
    withRank(expr)::
      '(\n%s\n)\n* on (%s) group_left (node, gpu, pid, comm_name)\ntopk by (%s) (1, %s)'
      % [q.indent(expr), q.rank, q.rank, q.s('nccl_communicator_info')],

    // jsonnet 0.18 cannot write 0 as %g.
    number(x):: if x == 0 then '0' else '%g' % x,

    trim(text):: std.rstripChars(text, '\n'),
    indent(text):: std.join('\n', ['  ' + line for line in std.split(q.trim(text), '\n')]),
  },
}
