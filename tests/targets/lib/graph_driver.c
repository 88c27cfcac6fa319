/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A libcuda.so.1 of nothing but graphs, in all the variants that the driver has: hands out handles,
 * used again as soon as they are free, and fails when told.
 */
#include <stdint.h>

typedef uint64_t handle;

int graph_driver_fails; /* the next call that makes something does not, and writes nothing */

static handle free_handles[1024], last = 0x700000001000;
static int n_free;

static int make(handle *ret)
{
	if (graph_driver_fails) {
		graph_driver_fails = 0;
		return 1;
	}
	*ret = n_free ? free_handles[--n_free] : (last += 0x100);
	return 0;
}

static int destroy(handle h)
{
	if (n_free < 1024)
		free_handles[n_free++] = h;
	return 0;
}

#define BEGIN(name)                                                                                \
	int name(void *stream, int mode);                                                          \
	int name(void *stream, int mode)                                                           \
	{                                                                                          \
		return (void)stream, (void)mode, 0;                                                \
	}
#define BEGIN_TO_GRAPH(name)                                                                       \
	int name(void *stream, handle graph, void *from, void *data, uint64_t n, int mode);        \
	int name(void *stream, handle graph, void *from, void *data, uint64_t n, int mode)         \
	{                                                                                          \
		return (void)stream, (void)graph, (void)from, (void)data, (void)n, (void)mode, 0;  \
	}
#define END(name)                                                                                  \
	int name(void *stream, handle *graph);                                                     \
	int name(void *stream, handle *graph)                                                      \
	{                                                                                          \
		return (void)stream, make(graph);                                                  \
	}
#define INSTANTIATE(name)                                                                          \
	int name(handle *exec, handle graph, uint64_t flags);                                      \
	int name(handle *exec, handle graph, uint64_t flags)                                       \
	{                                                                                          \
		return (void)graph, (void)flags, make(exec);                                       \
	}
#define LAUNCH(name)                                                                               \
	int name(handle exec, void *stream);                                                       \
	int name(handle exec, void *stream)                                                        \
	{                                                                                          \
		return (void)exec, (void)stream, 0;                                                \
	}
#define DESTROY(name)                                                                              \
	int name(handle h);                                                                        \
	int name(handle h)                                                                         \
	{                                                                                          \
		return destroy(h);                                                                 \
	}

BEGIN(cuStreamBeginCapture)
BEGIN(cuStreamBeginCapture_ptsz)
BEGIN(cuStreamBeginCapture_v2)
BEGIN(cuStreamBeginCapture_v2_ptsz)
BEGIN_TO_GRAPH(cuStreamBeginCaptureToGraph)
BEGIN_TO_GRAPH(cuStreamBeginCaptureToGraph_ptsz)
END(cuStreamEndCapture)
END(cuStreamEndCapture_ptsz)
INSTANTIATE(cuGraphInstantiate)
INSTANTIATE(cuGraphInstantiate_v2)
INSTANTIATE(cuGraphInstantiateWithFlags)
INSTANTIATE(cuGraphInstantiateWithParams)
INSTANTIATE(cuGraphInstantiateWithParams_ptsz)
LAUNCH(cuGraphLaunch)
LAUNCH(cuGraphLaunch_ptsz)
DESTROY(cuGraphDestroy)
DESTROY(cuGraphExecDestroy)

int cuGraphCreate(handle *graph, unsigned int flags);
int cuGraphCreate(handle *graph, unsigned int flags)
{
	return (void)flags, make(graph);
}

int cuGraphAddChildGraphNode(handle *node, handle graph, void *from, uint64_t n, handle child);
int cuGraphAddChildGraphNode(handle *node, handle graph, void *from, uint64_t n, handle child)
{
	return (void)node, (void)graph, (void)from, (void)n, (void)child, 0;
}

int cuStreamDestroy_v2(void *stream);
int cuStreamDestroy_v2(void *stream)
{
	return (void)stream, 0;
}
