/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef VERSION_H
#define VERSION_H

#define NCCL_BPFTRACE_VERSION "0.1.0"

#endif
