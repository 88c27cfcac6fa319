/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What plugins say that they lost. */
#include "timing_private.h"

#define MAX_LOSS (1ULL << 32) /* of one record: more is no number */

/* How many more than the last such record told; one that was lost is made up for by the next. */
static uint64_t losses__take(struct losses *losses, const struct nbp_loss_record *loss)
{
	uint64_t *total = &losses->total[loss->reason], n = loss->total - *total;

	if (!(losses->known >> loss->reason & 1) || loss->total < *total)
		n = loss->count;
	losses->known |= 1U << loss->reason;
	*total = loss->total;
	return n < MAX_LOSS ? n : MAX_LOSS;
}

static void timings__add_loss(struct timings *timings, enum nbp_loss reason, uint64_t n)
{
	switch (reason) {
	case NBP_LOSS_TIMING_ERROR:
		timings->invalid[TIMING_INVALID_DRIVER] += n;
		break;
	case NBP_LOSS_TIMING_ABANDONED:
		timings->invalid[TIMING_INVALID_ABANDONED] += n;
		break;
	case NBP_LOSS_TIMING_INVALID:
		timings->invalid[TIMING_INVALID_PLUGIN] += n;
		break;
	case NBP_LOSS_TIMER_FULL:
		timings->invalid[TIMING_INVALID_TIMER_FULL] += n;
		break;
	case NBP_LOSS_TIMER_REFUSED:
		timings->invalid[TIMING_INVALID_TIMER_REFUSED] += n;
		break;
	default:
		break;
	}
	timings->lost[reason] += n;
}

/* Returns how many of the plugin's own notes were lost. */
uint64_t timings__loss(struct timings *timings, struct losses *losses,
		       const struct nbp_loss_record *loss)
{
	uint64_t n;

	if (loss->reason >= NBP_LOSS_MAX) {
		timings->lost[TIMING_LOST_BAD_RECORD]++;
		return 0;
	}
	n = losses__take(losses, loss);
	timings__add_loss(timings, loss->reason, n);
	return loss->reason <= NBP_LOSS_NOT_READY ? n : 0;
}

void tracked__loss(struct timings *timings, struct tracked *tracked,
		   const struct nbp_loss_record *loss)
{
	uint64_t n = timings__loss(timings, &tracked->losses, loss);

	if (!n)
		return;
	tracked->own_up += n;
	tracked__doubt(tracked);
}

uint64_t timings__invalid(const struct timings *timings, enum timing_invalid reason)
{
	return reason < TIMING_INVALID_MAX ? timings->invalid[reason] : 0;
}

uint64_t timings__lost(const struct timings *timings, int reason)
{
	return reason >= 0 && reason < TIMING_LOST_MAX ? timings->lost[reason] : 0;
}
