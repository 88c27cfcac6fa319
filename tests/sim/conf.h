/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the stand-in is told by its surroundings, in NCCL's ways. */
#ifndef SIM_CONF_H
#define SIM_CONF_H

/* The environment, into which NCCL_CONF_FILE (or ~/.nccl.conf) and /etc/nccl.conf were read. */
const char *sim_env(const char *name);

#endif
