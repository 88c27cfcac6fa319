// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A small library for Grafana's dashboards: panels, variables, and where each panel stands.
local datasource = { type: 'prometheus', uid: '${datasource}' };
local letters = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ';

local panel(kind, title, description, unit, targets, width) = {
  type: kind,
  title: title,
  description: description,
  datasource: datasource,
  gridPos: { w: width, h: 8 },
  fieldConfig: { defaults: { unit: unit }, overrides: [] },
  targets: [targets[i] { refId: letters[i] } for i in std.range(0, std.length(targets) - 1)],
};

local steps(list) = { mode: 'absolute', steps: [{ color: s[1], value: s[0] } for s in list] };

{
  // A query; the legend names its series.
  target(expr, legend):: {
    datasource: datasource,
    expr: std.rstripChars(expr, '\n'),
    legendFormat: legend,
    range: true,
  },
  // The same, its value now alone.
  now(expr, legend):: self.target(expr, legend) + { range: false, instant: true },

  timeseries(title, description, unit, targets, width=12, stacked=false)::
    panel('timeseries', title, description, unit, targets, width) + {
      fieldConfig+: {
        defaults+: {
          color: { mode: 'palette-classic' },
          custom: {
            drawStyle: 'line',
            lineWidth: 1,
            fillOpacity: if stacked then 40 else 5,
            showPoints: 'never',
            spanNulls: false,
            stacking: { mode: if stacked then 'normal' else 'none', group: 'A' },
          },
        },
      },
      options: {
        legend: { displayMode: 'list', placement: 'bottom', showLegend: true, calcs: [] },
        tooltip: { mode: 'multi', sort: 'desc' },
      },
    },

  // thresholds: [[from, colour]]; the first from is null.
  stat(title, description, unit, targets, width=4, thresholds=[[null, 'text']], none='0')::
    panel('stat', title, description, unit, targets, width) + {
      gridPos+: { h: 4 },
      fieldConfig+: { defaults+: {
        color: { mode: 'thresholds' },
        thresholds: steps(thresholds),
        noValue: none,
      } },
      options: {
        reduceOptions: { calcs: ['lastNotNull'], fields: '', values: false },
        colorMode: 'value',
        graphMode: 'none',
        justifyMode: 'auto',
        orientation: 'auto',
        textMode: if std.length(targets) == 1 then 'value' else 'value_and_name',
      },
    },

  barGauge(title, description, unit, targets, width=12, thresholds=[[null, 'blue']])::
    panel('bargauge', title, description, unit, targets, width) + {
      fieldConfig+: { defaults+: {
        color: { mode: 'thresholds' },
        thresholds: steps(thresholds),
        min: 0,
      } },
      options: {
        displayMode: 'gradient',
        orientation: 'horizontal',
        showUnfilled: true,
        valueMode: 'color',
        reduceOptions: { calcs: ['lastNotNull'], fields: '', values: false },
      },
    },

  // One query, one row a series; columns: [[label, heading]], in this order, then the value.
  table(title, description, unit, expr, columns, value='', width=24)::
    panel('table', title, description, unit, [
      $.now(expr, '{{%s}}' % columns[0][0]) + { format: 'table' },
    ], width) + {
      fieldConfig+: { defaults+: { custom: { align: 'auto', filterable: true } } },
      options: { showHeader: true, cellHeight: 'sm' },
      local names = [c[0] for c in columns],
      transformations: [{
        id: 'filterFieldsByName',
        options: { include: { names: names + (if value == '' then [] else ['Value']) } },
      }, {
        id: 'organize',
        options: {
          indexByName: { [names[i]]: i for i in std.range(0, std.length(names) - 1) }
                       + { Value: std.length(names) },
          renameByName: { [c[0]]: c[1] for c in columns } + { Value: value },
        },
      }],
    },

  // Of a histogram: the query gives one series for each le.
  heatmap(title, description, unit, expr, width=12)::
    panel('heatmap', title, description, 'short', [
      $.target(expr, '{{le}}') + { format: 'heatmap' },
    ], width) + {
      fieldConfig+: { defaults+: { custom: { scaleDistribution: { type: 'linear' } } } },
      options: {
        calculate: false,
        color: { mode: 'scheme', scheme: 'Oranges', steps: 64, exponent: 0.5 },
        cellGap: 1,
        yAxis: { unit: unit, axisPlacement: 'left' },
        rowsFrame: { layout: 'auto', value: 'count' },
        legend: { show: true },
        // Before 10.4 it is "show" that shows it, later "mode": each has it on by default.
        tooltip: { yHistogram: false },
        showValue: 'never',
      },
    },

  // Rows of colours over time: of ranks by a value (thresholds), of states by their number (texts).
  timeline(title, description, unit, targets, thresholds=[], texts=[], width=24)::
    panel('state-timeline', title, description, unit, targets, width) + {
      fieldConfig+: {
        defaults+: {
          custom: { lineWidth: 0, fillOpacity: 80 },
          color: { mode: 'thresholds' },
          thresholds: steps(if thresholds == [] then [[null, 'transparent']] else thresholds),
          mappings: if texts == [] then [] else [{
            type: 'value',
            options: {
              [std.toString(i)]: { text: texts[i][0], color: texts[i][1], index: i }
              for i in std.range(0, std.length(texts) - 1)
            },
          }],
        },
      },
      options: {
        mergeValues: true,
        showValue: if texts == [] then 'never' else 'auto',
        alignValue: 'left',
        rowHeight: 0.85,
        legend: { displayMode: 'list', placement: 'bottom', showLegend: true },
        tooltip: { mode: 'single', sort: 'none' },
      },
    },

  // What the user picks. multi: the dashboard matches it with =~.
  datasourceVariable:: {
    name: 'datasource',
    label: 'Data source',
    type: 'datasource',
    query: 'prometheus',
    current: {},
    hide: 0,
    includeAll: false,
    multi: false,
    options: [],
    refresh: 1,
    regex: '',
    skipUrlSync: false,
  },
  variable(name, label, query):: {
    name: name,
    label: label,
    type: 'query',
    datasource: datasource,
    query: { query: query, refId: 'StandardVariableQuery' },
    // Where the label is missing everything is meant.
    allValue: '.*',
    current: { selected: true, text: ['All'], value: ['$__all'] },
    hide: 0,
    includeAll: true,
    multi: true,
    options: [],
    refresh: 2,
    regex: '',
    skipUrlSync: false,
    sort: 1,
  },

  // rows: [[title, panels]]. Panels stand from left to right, and go on below when a line is full.
  dashboard(c, uid, title, description, variables, rows)::
    local place(state, p) =
      local fits = state.x + p.gridPos.w <= 24;
      local x = if fits then state.x else 0;
      local y = if fits then state.y else state.below;
      {
        x: x + p.gridPos.w,
        y: y,
        below: std.max(if fits then state.below else y, y + p.gridPos.h),
        id: state.id + 1,
        panels: state.panels + [{ id: state.id } + p + { gridPos+: { x: x, y: y } }],
      };
    local placeRow(state, row) =
      local head = {
        id: state.id,
        type: 'row',
        title: row[0],
        collapsed: false,
        gridPos: { x: 0, y: state.below, w: 24, h: 1 },
        panels: [],
      };
      std.foldl(place, row[1], {
        x: 0,
        y: state.below + 1,
        below: state.below + 1,
        id: state.id + 1,
        panels: state.panels + [head],
      });
    {
      uid: uid,
      title: title,
      description: description,
      tags: c.dashboardTags,
      schemaVersion: 39,
      version: 1,
      editable: false,
      graphTooltip: 1,
      refresh: '30s',
      timezone: 'browser',
      time: { from: 'now-1h', to: 'now' },
      timepicker: {},
      annotations: { list: [] },
      links: [{
        type: 'dashboards',
        title: 'NCCL',
        tags: c.dashboardTags,
        asDropdown: false,
        includeVars: true,
        keepTime: true,
        targetBlank: false,
        icon: 'external link',
        tooltip: '',
        url: '',
      }],
      templating: { list: [$.datasourceVariable] + variables },
      panels: std.foldl(placeRow, rows, { x: 0, y: 0, below: 0, id: 1, panels: [] }).panels,
    },
}
