/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "prom.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "utf8.h"

#define ELLIPSIS    "\xe2\x80\xa6"
#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

struct prom {
	char *text; /* NUL-terminated at len */
	size_t len;
	size_t size;
	int error; /* the first -errno since prom__reset() */
	const char *cluster;
	const struct prom_family *family; /* begun, or NULL */
	bool written[METRIC_COUNT];	  /* HELP and TYPE are in the text */
	size_t max_series;
	size_t n_series; /* capped ones in the text */
	size_t n_admitted;
	uint64_t suppressed;
};

static int prom__grow(struct prom *p, size_t more)
{
	size_t size = p->size;
	char *text;

	if (more < size - p->len)
		return 0;
	while (size - p->len <= more) {
		if (size > SIZE_MAX / 2)
			return p->error = -ENOMEM;
		size *= 2;
	}
	text = realloc(p->text, size);
	if (!text)
		return p->error = -ENOMEM;
	p->text = text;
	p->size = size;
	return 0;
}

/* After an error the text stops growing; who publishes is told. */
static void prom__put(struct prom *p, const char *text, size_t len)
{
	if (p->error || prom__grow(p, len))
		return;
	memcpy(p->text + p->len, text, len);
	p->len += len;
	p->text[p->len] = '\0';
}

static void prom__puts(struct prom *p, const char *text)
{
	prom__put(p, text, strlen(text));
}

void prom__add_text(struct prom *p, const char *text)
{
	prom__puts(p, text);
}

int prom__new(struct prom **ret, size_t max_series)
{
	struct prom *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	p->size = 4096;
	p->text = calloc(1, p->size);
	p->max_series = max_series;
	if (!p->text) {
		free(p);
		return -ENOMEM;
	}
	*ret = p;
	return 0;
}

void prom__free(struct prom *p)
{
	if (!p)
		return;
	free(p->text);
	free(p);
}

void prom__reset(struct prom *p)
{
	p->len = 0;
	p->text[0] = '\0';
	p->error = 0;
	p->cluster = NULL;
	p->family = NULL;
	memset(p->written, 0, sizeof(p->written));
	p->n_series = 0;
	p->n_admitted = 0;
}

void prom__set_cluster(struct prom *p, const char *cluster)
{
	p->cluster = cluster;
}

bool prom__admit(struct prom *p, size_t n)
{
	if (n > p->max_series - p->n_admitted) {
		p->suppressed += n;
		return false;
	}
	p->n_admitted += n;
	return true;
}

uint64_t prom__suppressed(const struct prom *p)
{
	return p->suppressed;
}

int prom__text(const struct prom *p, const char **ret_text, size_t *ret_len)
{
	if (p->error)
		return p->error;
	*ret_text = p->text;
	*ret_len = p->len;
	return 0;
}

/*
 * Repairs value into ret, at most PROM_VALUE_MAX bytes. Looks at no more of value than it needs,
 * however long that is. Returns the length.
 */
static size_t value__repair(char ret[PROM_VALUE_MAX], const char *value)
{
	const unsigned char *in = (const unsigned char *)value;
	const size_t ellipsis_len = sizeof(ELLIPSIS) - 1;
	size_t len = 0, cut = 0; /* cut: the last boundary that leaves room for the ellipsis */

	while (*in) {
		uint32_t c = 0;
		size_t n_in = utf8__read(in, SIZE_MAX, &c), n = n_in;
		const void *bytes = in;

		/* A newline is escaped; a terminal that shows the file must not obey the rest. */
		if (!n_in || (utf8__is_control(c) && c != '\n')) {
			bytes = REPLACEMENT;
			n = sizeof(REPLACEMENT) - 1;
		}
		if (len + n > PROM_VALUE_MAX) {
			memcpy(ret + cut, ELLIPSIS, ellipsis_len);
			return cut + ellipsis_len;
		}
		memcpy(ret + len, bytes, n);
		len += n;
		if (len <= PROM_VALUE_MAX - ellipsis_len)
			cut = len;
		in += n_in ? n_in : 1;
	}
	return len;
}

static size_t value__escape(char ret[PROM_ESCAPED_MAX], const char *value, size_t len)
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++) {
		bool newline = value[i] == '\n';

		if (newline || value[i] == '"' || value[i] == '\\')
			ret[n++] = '\\';
		ret[n++] = newline ? 'n' : value[i];
	}
	return n;
}

/* Length of a value that can stand as it is, as nearly all can; 0: see repair and escape. */
static size_t value__plain_len(const char *value)
{
	for (size_t n = 0; n <= PROM_VALUE_MAX; n++) {
		unsigned char c = value[n];

		if (!c)
			return n;
		if (c < 0x20 || c >= 0x7f || c == '"' || c == '\\')
			return 0;
	}
	return 0;
}

const char *prom__escape(const char *value, char buf[PROM_ESCAPED_MAX])
{
	char repaired[PROM_VALUE_MAX];
	size_t len = value__plain_len(value);

	if (len)
		memcpy(buf, value, len);
	else
		len = value__escape(buf, repaired, value__repair(repaired, value));
	buf[len] = '\0';
	return buf;
}

static void prom__value(struct prom *p, const char *value)
{
	char escaped[PROM_ESCAPED_MAX];

	prom__puts(p, prom__escape(value, escaped));
}

static void prom__label(struct prom *p, char before, const char *name, const char *value)
{
	prom__put(p, &before, 1);
	prom__puts(p, name);
	prom__puts(p, "=\"");
	if (value)
		prom__value(p, value);
	prom__puts(p, "\"");
}

/* le: the bucket's bound, in a histogram's lines; else NULL. */
static void prom__labels(struct prom *p, const char *const *values, const char *le)
{
	const char *const *names = p->family->labels;
	char before = '{';

	if (p->cluster && p->cluster[0]) {
		prom__label(p, before, "cluster", p->cluster);
		before = ',';
	}
	for (size_t i = 0; names[i]; i++) {
		prom__label(p, before, names[i], values[i]);
		before = ',';
	}
	if (le) {
		prom__label(p, before, "le", le);
		before = ',';
	}
	if (before == ',')
		prom__puts(p, "}");
}

int prom__begin(struct prom *p, enum metric_id id)
{
	const struct prom_family *family = &prom_families[id];

	if (p->family == family)
		return 0;
	p->family = NULL;
	if (p->written[id])
		return -EALREADY;
	p->family = family;
	return 0;
}

static void prom__header(struct prom *p)
{
	const struct prom_family *family = p->family;
	const char *const parts[] = {"# HELP ", family->name, " ", family->help, "\n",
				     "# TYPE ", family->name, " ", family->type, "\n"};

	if (p->written[family - prom_families])
		return;
	p->written[family - prom_families] = true;
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		prom__puts(p, parts[i]);
}

static void prom__line(struct prom *p, const char *suffix, const char *const *label_values,
		       const char *le, const char *number)
{
	prom__puts(p, p->family->name);
	prom__puts(p, suffix);
	prom__labels(p, label_values, le);
	prom__puts(p, " ");
	prom__puts(p, number);
	prom__puts(p, "\n");
}

/* False: n series more do not fit, and are counted. */
static bool prom__take(struct prom *p, size_t n)
{
	if (p->family->capped &&
	    (p->n_series >= p->max_series || n > p->max_series - p->n_series)) {
		p->suppressed += n;
		return false;
	}
	if (p->family->capped)
		p->n_series += n;
	prom__header(p);
	return true;
}

static int prom__one(struct prom *p, const char *const *label_values, const char *number)
{
	if (!p->family)
		return -EINVAL;
	if (prom__take(p, 1))
		prom__line(p, "", label_values, NULL, number);
	return p->error;
}

#define NUMBER_MAX 32

/* The short form where it is exact: 0.1 and not 0.10000000000000001. Returns buf. */
static const char *number__format(double value, char buf[NUMBER_MAX])
{
	snprintf(buf, NUMBER_MAX, "%.15g", value);
	if (strtod(buf, NULL) != value)
		snprintf(buf, NUMBER_MAX, "%.17g", value);
	return buf;
}

static const char *number__format_u64(uint64_t value, char buf[NUMBER_MAX])
{
	snprintf(buf, NUMBER_MAX, "%" PRIu64, value);
	return buf;
}

int prom__sample(struct prom *p, const char *const *label_values, double value)
{
	char number[NUMBER_MAX];

	if (!isfinite(value))
		return -EINVAL;
	return prom__one(p, label_values, number__format(value, number));
}

int prom__sample_u64(struct prom *p, const char *const *label_values, uint64_t value)
{
	char number[NUMBER_MAX];

	return prom__one(p, label_values, number__format_u64(value, number));
}

int prom__histogram(struct prom *p, const char *const *label_values, const double *bounds,
		    size_t n_bounds, const uint64_t *buckets, double sum)
{
	char number[NUMBER_MAX], le[NUMBER_MAX];
	uint64_t count = 0;

	if (!p->family || !isfinite(sum))
		return -EINVAL;
	if (!prom__take(p, PROM_HISTOGRAM_SERIES(n_bounds)))
		return p->error;
	for (size_t i = 0; i <= n_bounds; i++) {
		count += buckets[i];
		prom__line(p, "_bucket", label_values,
			   i < n_bounds ? number__format(bounds[i], le) : "+Inf",
			   number__format_u64(count, number));
	}
	prom__line(p, "_sum", label_values, NULL, number__format(sum, number));
	prom__line(p, "_count", label_values, NULL, number__format_u64(count, number));
	return p->error;
}
