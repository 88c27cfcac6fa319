// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// An alert with all that every one of them has.
local severities = { P0: 'critical', P1: 'warning', P2: 'info' };

{
  // component: 'job' or 'agent'; who is muted by whom goes by it.
  new(c, name, priority, component, expr, hold, summary, description):: {
    alert: name,
    expr: expr,
    'for': hold,
    labels: { severity: severities[priority], priority: priority, component: component },
    annotations: {
      summary: summary,
      description: description,
      runbook_url: c.runbookURLPattern % std.asciiLower(name),
    },
  },

  // A job may have no name.
  job:: '{{ with $labels.job_id }}job {{ . }}{{ else }}a job without a name{{ end }}',
  comm:: '{{ $labels.comm }}{{ with $labels.comm_name }} ({{ . }}){{ end }}',
  who:: 'rank {{ $labels.rank }} on {{ $labels.node }}'
        + '{{ with $labels.gpu }}, GPU {{ . }}{{ end }}{{ with $labels.pid }}, pid {{ . }}{{ end }}',
}
