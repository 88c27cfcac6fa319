// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A monitoring mixin: prometheusRules, prometheusAlerts and grafanaDashboards, from _config.
(import 'config.libsonnet')
+ { prometheusRules:: { groups: [] }, prometheusAlerts:: { groups: [] }, grafanaDashboards:: {} }
+ (import 'rules/agents.libsonnet')
+ (import 'rules/communicators.libsonnet')
+ (import 'rules/times.libsonnet')
+ (import 'alerts/stopped.libsonnet')
+ (import 'alerts/blind.libsonnet')
+ (import 'alerts/slow.libsonnet')
+ (import 'alerts/drift.libsonnet')
+ (import 'dashboards/fleet.libsonnet')
+ (import 'dashboards/job.libsonnet')
+ (import 'dashboards/node.libsonnet')
+ (import 'dashboards/agent.libsonnet')
