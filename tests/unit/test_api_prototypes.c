/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The parameters of nccl_api.def against a real nccl.h: a row that is wrong does not compile. Built
 * only where there is such a header (-DNCCL_H='"/path/nccl.h"' names one; -Itests/unit/stub where
 * there is no CUDA).
 */
#include <stddef.h>
#include <stdint.h>

#ifndef NCCL_H
#define NCCL_H <nccl.h>
#endif
/* NVIDIA's, not ours: it declares some functions with () */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include NCCL_H
#pragma GCC diagnostic pop

#include "api_prototypes.h"
#include "unit.h"

#include "../../src/nccl_api.c"

TEST(prototypes_are_those_of_nccl_h)
{
	unsigned int n_compiled = 0;
	char version[16];

	for (unsigned int i = 0; i < NCCL_FN_PROBED; i++)
		n_compiled += nccl_functions[i].since <= NCCL_VERSION_CODE;
	printf("%u of %u prototypes compiled against nccl.h %s\n", n_compiled,
	       (unsigned int)NCCL_FN_PROBED, nccl_version__format(NCCL_VERSION_CODE, version));
	CHECK(n_compiled > 0);
}

/* The numbers that decode and labels rest on. */
TEST(datatypes_are_those_of_nccl_h)
{
	CHECK_INT(nccl_datatype__size(ncclInt8), 1);
	CHECK_INT(nccl_datatype__size(ncclInt32), 4);
	CHECK_INT(nccl_datatype__size(ncclUint64), 8);
	CHECK_INT(nccl_datatype__size(ncclFloat16), 2);
	CHECK_INT(nccl_datatype__size(ncclFloat32), 4);
	CHECK_INT(nccl_datatype__size(ncclFloat64), 8);
	CHECK(ncclNumTypes <= NCCL_N_DATATYPES);
#if NCCL_VERSION_CODE >= 22403
	CHECK_INT(nccl_datatype__size(ncclFloat8e5m2), 1);
#endif
}

UNIT_MAIN()
