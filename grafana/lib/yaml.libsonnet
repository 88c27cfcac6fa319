// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Rule files as a person would write them: std.manifestYamlDoc would quote every key.
{
  local text(value, indent) =
    local lines = std.split(std.rstripChars(value, '\n'), '\n');
    if std.length(lines) == 1 then "'" + std.strReplace(lines[0], "'", "''") + "'"
    else std.join('\n', ['|-'] + [if line == '' then '' else indent + line for line in lines]),
  local pairs(object, order, indent) =
    std.join('', [
      indent + key + ': ' + text(object[key], indent + '  ') + '\n'
      for key in order
      if std.objectHas(object, key)
    ]),
  local rule(r) =
    local inner = '    ';
    local body = pairs(r, ['alert', 'record', 'expr', 'for'], inner);
    local nested(key) =
      if std.objectHas(r, key)
      then inner + key + ':\n' + pairs(r[key], std.objectFields(r[key]), inner + '  ')
      else '';
    '  - ' + std.substr(body, 4, std.length(body)) + nested('labels') + nested('annotations'),

  // {groups: [{name, interval, rules}]}
  groups(object)::
    'groups:\n' + std.join('', [
      '- name: %s\n  interval: %s\n  rules:\n' % [group.name, group.interval]
      + std.join('', [rule(r) for r in group.rules])
      for group in object.groups
    ]),
}
