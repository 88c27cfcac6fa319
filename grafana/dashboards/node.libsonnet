// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A node and its GPUs: NCCL beside what DCGM exporter and node_exporter know.
{
  grafanaDashboards+:: {
    local c = $._config,
    local p = import '../lib/panels.libsonnet',
    local q = (import '../lib/promql.libsonnet').new(c),
    local cluster = '%s=~"$cluster"' % c.clusterLabel,
    local node = '%s,%s=~"$node"' % [cluster, c.nodeLabel],
    local and(a, b) = if b == '' then a else a + ',' + b,
    local s(name, matchers='') = q.s(name, and(node, matchers)),
    local byGpu = q.node + ', UUID, job_id',
    local rate(series) = 'rate(%s[$__rate_interval])' % series,
    // GPUs that a job of this node uses. DCGM exporter repeats a GPU for each job, pod or share of
    // it, and scrapes it under another instance: the UUID joins, and max makes it one.
    local dcgm(name) =
      'max by (UUID) (%s)\n* on (UUID) group_left (%s, job_id)\ntopk by (UUID) (1, group by (%s) (%s))'
      % [name, q.node, byGpu, s('nccl_bpftrace_process_info')],
    // One line a GPU and job. The first digits tell the GPUs of a node apart.
    local perGpu(expr) = p.target(
      'label_replace(\n%s,\n  "short", "$1", "UUID", "([^-]+-[^-]+).*"\n)' % q.indent(expr),
      q.onNode + ' {{short}} {{job_id}}'
    ),
    local gpus(title, description, unit, name, width=8) =
      p.timeseries(title, description + ' Of GPUs with an NCCL job; needs DCGM exporter.', unit, [perGpu(dcgm(name))], width),
    local bandwidth(matchers='') =
      'sum by (%s) (%s)\n/\nsum by (%s) (%s)'
      % [byGpu, rate(s('nccl_timed_bus_bytes_total', matchers)), byGpu, rate(s('nccl_timed_seconds_total', matchers))],
    local nic(title, description, received, transmitted, unit='Bps') =
      p.timeseries(title, description, unit, [
        p.target('sum by (%s, device) (%s)' % [q.node, rate(s(received[0], received[1]))], q.onNode + ' {{device}} in'),
        p.target('sum by (%s, device) (%s)' % [q.node, rate(s(transmitted[0], transmitted[1]))], q.onNode + ' {{device}} out'),
      ]),
    // Not bridges, containers or loopback.
    local wires = 'device!~"lo|veth.*|docker.*|br-.*|cali.*|cni.*|flannel.*"',

    'nccl-node.json': p.dashboard(
      c,
      'nccl-bpftrace-node',
      'NCCL / Node and GPU',
      'A node and its GPUs: NCCL beside what DCGM exporter and node_exporter know.',
      [
        p.variable('cluster', 'Cluster', 'label_values(%s, %s)' % [q.s('nccl_bpftrace_heartbeat_timestamp_seconds'), c.clusterLabel]),
        p.variable('node', 'Node', 'label_values(%s, %s)' % [q.s('nccl_bpftrace_heartbeat_timestamp_seconds', cluster), c.nodeLabel]),
      ],
      [
        ['NCCL', [
          p.timeseries(
            'Bus bandwidth of each GPU',
            'Over all operations that were timed. One GPU below its neighbours: look at its links and clocks.',
            'Bps',
            [perGpu(bandwidth())],
          ),
          p.timeseries(
            'Bus bandwidth of each GPU, within the node',
            'Of communicators whose ranks are all here: NVLink or PCIe.',
            'Bps',
            [perGpu(bandwidth('scope="node"'))],
          ),
          p.timeseries(
            'Lateness by GPU',
            'Share of the time by which the ranks of a GPU call behind the first one of the node.',
            'percentunit',
            [perGpu('max by (%s) (%s)' % [byGpu, rate(s('nccl_operation_lateness_seconds_total'))])],
          ),
          p.timeseries(
            'Calls by GPU',
            'Every call is counted.',
            'ops',
            [perGpu('sum by (%s) (%s)' % [byGpu, rate(s('nccl_operations_total', 'mode!="captured"'))])],
          ),
          p.table(
            'Jobs here',
            'Processes with NCCL, their GPU and job.',
            'none',
            s('nccl_bpftrace_process_info'),
            [[c.clusterLabel, 'Cluster'], [c.nodeLabel, 'Scraped as'], ['job_id', 'Job'], ['pid', 'Process'], ['command', 'Command'], ['local_rank', 'Local rank'], [c.podLabel, 'Pod'], ['UUID', 'UUID'], ['nccl_version', 'NCCL'], ['plugin', 'Plugin']],
          ),
        ]],
        ['GPU', [
          gpus('Utilisation', 'Share of the time in which a kernel ran; one that waits in NCCL is busy, too.', 'percent', 'DCGM_FI_DEV_GPU_UTIL'),
          gpus('Temperature', 'Of the GPU.', 'celsius', 'DCGM_FI_DEV_GPU_TEMP'),
          gpus('Power', 'Drawn by the GPU. A GPU that waits in NCCL draws much less than its neighbours.', 'watt', 'DCGM_FI_DEV_POWER_USAGE'),
          gpus('SM clock', 'Below its neighbours: throttled.', 'suffix: MHz', 'DCGM_FI_DEV_SM_CLOCK'),
          gpus('NVLink', 'DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL, of all lanes, as DCGM gives it (MB/s).', 'MBs', 'DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL'),
          gpus('XID', 'The last XID that the driver reported; 0: none.', 'none', 'DCGM_FI_DEV_XID_ERRORS'),
        ]],
        ['Network', [
          nic('InfiniBand and RoCE, data', 'Of the ports of RDMA devices.', ['node_infiniband_port_data_received_bytes_total', ''], ['node_infiniband_port_data_transmitted_bytes_total', '']),
          nic('Ethernet and IP', 'Of network interfaces. RDMA does not show here.', ['node_network_receive_bytes_total', wires], ['node_network_transmit_bytes_total', wires]),
          nic('InfiniBand errors', 'In: packets with an error. Out: discarded, the port was down or congested.', ['node_infiniband_port_errors_received_total', ''], ['node_infiniband_port_discards_transmitted_total', ''], 'pps'),
          p.timeseries(
            'InfiniBand links that went down',
            'How often, since the driver was loaded.',
            'none',
            [p.target('sum by (%s, device) (%s)' % [q.node, s('node_infiniband_link_downed_total')], q.onNode + ' {{device}}')],
          ),
        ]],
      ],
    ),
  },
}
