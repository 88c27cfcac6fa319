// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The states of a communicator, the worst last, and how they are coloured.
[
  ['idle', 'blue'],
  ['healthy', 'green'],
  ['unknown', 'text'],
  ['degraded_sight', 'purple'],
  ['slow', 'yellow'],
  ['straggler', 'yellow'],
  ['waiting', 'orange'],
  ['stuck', 'red'],
  ['mismatch', 'dark-red'],
  ['aborted', 'dark-red'],
  ['error', 'dark-red'],
]
