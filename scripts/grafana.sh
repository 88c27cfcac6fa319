#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# Renders the mixin in grafana/: rules, alerts and dashboards.
# usage: scripts/grafana.sh [DIR [CONFIG]]
#   DIR     where to; grafana/rendered by default
#   CONFIG  a jsonnet object with keys of grafana/config.libsonnet, say '{ agentStaleSeconds: 300 }'
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
to=${1:-$root/grafana/rendered}
config=${2:-"{}"}
command -v jsonnet >/dev/null || {
	echo "scripts/grafana.sh: jsonnet is not installed (apt: jsonnet)" >&2
	exit 3
}

render() {
	what=$1
	shift
	jsonnet -J "$root/grafana" --ext-code "config=$config" "$@" -e \
		"local mixin = (import 'mixin.libsonnet') + { _config+:: std.extVar('config') }; $what"
}

mkdir -p "$to/dashboards"
head='# Rendered by scripts/grafana.sh from grafana/*.libsonnet: change those.'
for kind in Rules Alerts; do
	file=$to/$(echo $kind | tr RA ra).yaml
	{
		echo "$head"
		render "(import 'lib/yaml.libsonnet').groups(mixin.prometheus$kind)" -S
	} >"$file.tmp"
	mv "$file.tmp" "$file"
done
render mixin.grafanaDashboards -m "$to/dashboards" >/dev/null
