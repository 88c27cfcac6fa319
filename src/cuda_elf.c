/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "cuda_elf.h"

#include <errno.h>
#include <string.h>

#include "util.h"

/* By the name within the file: what wraps it exports the same functions, and calls it. */
#define SONAME "libcuda.so.1"

/*
 * CUDA driver API, 10.0 to 13.0. ..._ptsz: the same with the thread's own default stream. Arguments
 * are at the same places in all versions of one function.
 */
static const struct {
	const char *symbol;
	enum nb_graph_call call;
} functions[] = {
	{"cuStreamBeginCapture", NB_GRAPH_BEGIN},
	{"cuStreamBeginCapture_ptsz", NB_GRAPH_BEGIN},
	{"cuStreamBeginCapture_v2", NB_GRAPH_BEGIN},
	{"cuStreamBeginCapture_v2_ptsz", NB_GRAPH_BEGIN},
	{"cuStreamBeginCaptureToGraph", NB_GRAPH_BEGIN_TO_GRAPH},
	{"cuStreamBeginCaptureToGraph_ptsz", NB_GRAPH_BEGIN_TO_GRAPH},
	{"cuStreamEndCapture", NB_GRAPH_END},
	{"cuStreamEndCapture_ptsz", NB_GRAPH_END},
	{"cuStreamDestroy", NB_GRAPH_STREAM_DESTROY},
	{"cuStreamDestroy_v2", NB_GRAPH_STREAM_DESTROY},
	{"cuGraphInstantiate", NB_GRAPH_INSTANTIATE},
	{"cuGraphInstantiate_v2", NB_GRAPH_INSTANTIATE},
	{"cuGraphInstantiateWithFlags", NB_GRAPH_INSTANTIATE},
	{"cuGraphInstantiateWithParams", NB_GRAPH_INSTANTIATE},
	{"cuGraphInstantiateWithParams_ptsz", NB_GRAPH_INSTANTIATE},
	{"cuGraphLaunch", NB_GRAPH_LAUNCH},
	{"cuGraphLaunch_ptsz", NB_GRAPH_LAUNCH},
	{"cuGraphDestroy", NB_GRAPH_DESTROY},
	{"cuGraphExecDestroy", NB_GRAPH_EXEC_DESTROY},
	{"cuGraphAddChildGraphNode", NB_GRAPH_ADD_CHILD},
};

int cuda_elf__each_site(const struct elf_file *file, uint16_t machine, cuda_site_fn *fn, void *ctx)
{
	bool has_launch = false;

	if (file->machine != machine || !elf_file__is_called(file, SONAME))
		return 0;
	for (unsigned int i = 0; i < ARRAY_SIZE(functions); i++) {
		const Elf64_Phdr *segment;
		Elf64_Sym symbol;
		int err = elf_file__dynamic_symbol(file, functions[i].symbol, &symbol);

		if (err == -ENOENT || err == -EOPNOTSUPP || err == -EBADMSG)
			continue;
		if (err)
			return err;
		segment = elf_file__segment(file, symbol.st_value, PF_X);
		if (segment && symbol.st_shndx != SHN_UNDEF &&
		    ELF64_ST_TYPE(symbol.st_info) == STT_FUNC) {
			fn(ctx, symbol.st_value - segment->p_vaddr + segment->p_offset,
			   functions[i].call);
			has_launch |= functions[i].call == NB_GRAPH_LAUNCH;
		}
	}
	return has_launch; /* without, a stand-in for the driver */
}
