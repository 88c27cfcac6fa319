// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What a site may set. Override it by adding to the mixin, for example in a file of your own:
//
//   (import 'mixin.libsonnet') + { _config+:: { selector: 'job="node"', agentStaleSeconds: 300 } }
//
// or on the command line, as scripts/grafana.sh does with its second argument:
//
//   scripts/grafana.sh DIR '{ stuckFor: "5s", stillSeconds: 10 }'
//
// Tests shorten `for`, ranges and thresholds in the same way (tests/lib/panels.py: render()).
{
  _config+:: {
    // Label matchers for every series of nccl-bpftrace, for example 'job="node"'; '' takes all.
    selector: '',
    // The label that tells clusters apart, and the one that tells nodes apart: that of the
    // node_exporter which serves the file. Both may be missing from the data, not from here.
    clusterLabel: 'cluster',
    nodeLabel: 'instance',
    // 'exported_pod' where Prometheus has honor_labels: false and labels its targets with pods.
    podLabel: 'pod',
    namespaceLabel: 'namespace',
    // Ranks of one communicator on different nodes belong together by these. Where job_id is
    // the same on every node (Slurm), 'job_id' may be added: then no job can disturb another's
    // verdict by a communicator of the same hash. In Kubernetes job_id is the pod's.
    communicatorLabels: ['comm'],
    // Operations that every rank of a communicator calls, and that are numbered alike on all.
    collectives: ['AllReduce', 'AllGather', 'ReduceScatter', 'Broadcast', 'Reduce', 'AlltoAll'],
    // Of these, the ones that take every rank equally long unless one comes late.
    symmetric: ['AllReduce', 'AllGather', 'ReduceScatter', 'AlltoAll'],
    // Link to the text of an alert: where this site serves grafana/runbooks.md. %s is the
    // anchor, the alert's name in lower case.
    runbookURLPattern: 'grafana/runbooks.md#%s',
    dashboardTags: ['nccl', 'nccl-bpftrace'],
    // Seconds between two evaluations of a rule.
    evaluationSeconds: 30,
    // Window of rates in rules: four scrapes or more.
    rateRange: '5m',

    // A heartbeat older than this is a dead agent; its last values are believed no more.
    // Several times the agents' --interval and the scrape interval.
    agentStaleSeconds: 120,
    agentStaleFor: '1m',
    // For so long a node is remembered that had an agent and has none any more.
    agentGoneRange: '15m',
    agentGoneFor: '2m',

    // On a communicator on which no rank called for so long, ranks of different nodes are compared.
    stillSeconds: 120,
    stuckFor: '1m',
    missingFor: '2m',
    inFlightSeconds: 300,
    // For so long a rank is remembered that is not seen any more.
    vanishedRange: '15m',
    // At most so many ranks are named for one communicator and operation.
    culprits: 8,
    // For counters that appear with their first value, and losses.
    lossRange: '10m',

    // A rank for which the others of its node wait this share of the time, and that is last in
    // this share of the operations in which anybody is.
    lateShare: 0.05,
    lastShare: 0.5,
    lateFor: '10m',
    slowFor: '10m',
    // A node whose operations take less than this share of the job's median is waited for.
    nodeLateRatio: 0.5,
    nodeLateSeconds: 0.001,
    nodeLateMinNodes: 3,

    // Bandwidth of the last driftRange against the same driftOffset ago.
    driftRatio: 0.9,
    driftRange: '6h',
    driftOffset: '1w',
    driftFor: '2h',
    // Below so many seconds of timed GPU work in either range nothing is compared.
    driftMinSeconds: 60,

    sampleRatioMin: 0.001,
    qualityFor: '30m',
    // P0 for reasons of loss with which counts are no longer exact; all others are P2.
    hurtfulLosses: ['counter_full', 'bad_cookie', 'graph_full', 'handover'],
  },
}
