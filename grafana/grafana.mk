# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# make grafana    renders grafana/*.libsonnet to grafana/rendered

.PHONY: grafana
grafana:
	@scripts/grafana.sh
	@jsonnetfmt -i grafana/*.libsonnet grafana/*/*.libsonnet
