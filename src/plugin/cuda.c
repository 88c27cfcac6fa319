/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "timing.h"

#include <dlfcn.h>
#include <stdlib.h>

#define LOOK_EVERY_NS (1 * NS_PER_SECOND)
#define EXIT_WAIT_MS  200

struct cuda cuda;

static struct {
	atomic_bool usable;
	atomic_bool inside; /* the plugin's thread is in the driver */
	bool refused;	    /* a function is missing */
	bool at_exit;
	uint64_t looked_ns;
	CUcontext within; /* while it is inside */
} driver;

bool cuda__usable(void)
{
	return atomic_load_explicit(&driver.usable, memory_order_acquire) &&
	       !atomic_load_explicit(&process.ending, memory_order_relaxed);
}

void cuda__end(void)
{
	struct timespec ms = {.tv_nsec = NS_PER_MS};

	atomic_store(&process.ending, true);
	for (int i = 0; i < EXIT_WAIT_MS && atomic_load(&driver.inside); i++)
		nanosleep(&ms, NULL);
}

static bool driver__bind(void *library)
{
	struct {
		const char *name;
		void *to;
		bool optional;
	} symbols[] = {
		{"cuCtxGetCurrent", &cuda.ctx_get_current, false},
		{"cuCtxSetCurrent", &cuda.ctx_set_current, false},
		{"cuCtxGetDevice", &cuda.ctx_get_device, false},
		{"cuDeviceGetUuid", &cuda.device_get_uuid, true},
		{"cuDeviceGetUuid_v2", &cuda.device_get_uuid, true},
		{"cuEventCreate", &cuda.event_create, false},
		{"cuEventRecord", &cuda.event_record, false},
		{"cuEventQuery", &cuda.event_query, false},
		{"cuEventElapsedTime", &cuda.event_elapsed, false},
		{"cuStreamCreate", &cuda.stream_create, false},
		{"cuStreamIsCapturing", &cuda.stream_is_capturing, false},
		{"cuThreadExchangeStreamCaptureMode", &cuda.exchange_capture_mode, false},
	};

	for (size_t i = 0; i < sizeof(symbols) / sizeof(*symbols); i++) {
		void *function = dlsym(library, symbols[i].name);

		if (function)
			*(void **)symbols[i].to = function;
		else if (!symbols[i].optional)
			return false;
	}
	return true;
}

bool cuda__load(void)
{
	uint64_t now = now_ns();
	void *library;

	if (cuda__usable() || driver.refused || atomic_load(&process.ending))
		return cuda__usable();
	if (driver.looked_ns && now - driver.looked_ns < LOOK_EVERY_NS)
		return false;
	driver.looked_ns = now;
	library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	if (!library)
		return false;
	if (!driver__bind(library)) {
		driver.refused = true;
		control__lost(NBP_LOSS_TIMING_ERROR);
		return false;
	}
	if (!driver.at_exit)
		atexit(process__end);
	driver.at_exit = true;
	atomic_store_explicit(&driver.usable, true, memory_order_release);
	return true;
}

/* Sequentially consistent against cuda__end(): either it sees `inside`, or this sees `ending`. */
static int driver__enter(CUcontext context)
{
	int mode = CAPTURE_MODE_RELAXED, error = -1;

	atomic_store(&driver.inside, true);
	/*
	 * In any other mode a look at an event would invalidate a capture that another thread has
	 * under way. The mode is the thread's and stays; asking each time costs nothing.
	 */
	if (!atomic_load(&process.ending))
		error = cuda.exchange_capture_mode(&mode);
	if (!error)
		error = cuda.ctx_set_current(context);
	return error;
}

int cuda__enter(CUcontext context)
{
	int error;

	if (driver.within == context)
		return atomic_load(&process.ending) ? -1 : 0;
	error = driver__enter(context);
	if (error)
		cuda__leave();
	else
		driver.within = context;
	return error;
}

void cuda__leave(void)
{
	driver.within = NULL;
	atomic_store(&driver.inside, false);
}
