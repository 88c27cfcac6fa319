/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The least a unit test needs: TEST(name) { ... } registers itself, CHECK*() note a failure and go
 * on, SKIP(reason) ends a test that cannot run here. One program per test file:
 *
 *	#include "unit.h"
 *	#include "../../src/thing.c"
 *
 *	TEST(thing_does_it)
 *	{
 *		CHECK_INT(thing__do(), 0);
 *	}
 *
 *	UNIT_MAIN()
 *
 * Prints "ok NAME", "skip NAME: reason" or "FAIL file:line: what" and, as the last line,
 * "N passed, N failed"; skipped tests are in neither number. Exit status 1 when one failed.
 */
#ifndef NCCL_BPFTRACE_TESTS_UNIT_H
#define NCCL_BPFTRACE_TESTS_UNIT_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define UNIT_TESTS_MAX 256

struct unit_test {
	const char *name;
	void (*run)(void);
};

static struct unit_test unit_tests[UNIT_TESTS_MAX];
static int unit_n_tests;
static int unit_n_failures; /* failed checks of the running test */
static const char *unit_skipped;

#define TEST(name)                                                                                 \
	static void test_##name(void);                                                             \
	__attribute__((constructor)) static void unit_register_##name(void)                        \
	{                                                                                          \
		if (unit_n_tests < UNIT_TESTS_MAX)                                                 \
			unit_tests[unit_n_tests] = (struct unit_test){#name, test_##name};         \
		unit_n_tests++;                                                                    \
	}                                                                                          \
	static void test_##name(void)

#define SKIP(reason)                                                                               \
	do {                                                                                       \
		unit_skipped = (reason);                                                           \
		return;                                                                            \
	} while (0)

#define CHECK(expr)                                                                                \
	do {                                                                                       \
		if (!(expr)) {                                                                     \
			unit_n_failures++;                                                         \
			printf("FAIL %s:%d: %s\n", __FILE__, __LINE__, #expr);                     \
		}                                                                                  \
	} while (0)

#define CHECK_INT(got, want)                                                                       \
	do {                                                                                       \
		long long unit_got = (long long)(got), unit_want = (long long)(want);              \
		if (unit_got != unit_want) {                                                       \
			unit_n_failures++;                                                         \
			printf("FAIL %s:%d: %s is %lld and not %lld\n", __FILE__, __LINE__, #got,  \
			       unit_got, unit_want);                                               \
		}                                                                                  \
	} while (0)

#define CHECK_STR(got, want)                                                                       \
	do {                                                                                       \
		const char *unit_got = (got), *unit_want = (want);                                 \
		if (!unit_got || strcmp(unit_got, unit_want)) {                                    \
			unit_n_failures++;                                                         \
			printf("FAIL %s:%d: %s is \"%s\" and not \"%s\"\n", __FILE__, __LINE__,    \
			       #got, unit_got ? unit_got : "(null)", unit_want);                   \
		}                                                                                  \
	} while (0)

static inline bool unit_run(const struct unit_test *test)
{
	unit_n_failures = 0;
	unit_skipped = NULL;
	test->run();
	if (unit_n_failures)
		printf("FAIL %s\n", test->name);
	else if (unit_skipped)
		printf("skip %s: %s\n", test->name, unit_skipped);
	else
		printf("ok %s\n", test->name);
	/* tests fork: a child must not print what its parent has buffered */
	fflush(stdout);
	return !unit_n_failures;
}

static inline int unit_main(void)
{
	int n_passed = 0, n_failed = 0;

	if (unit_n_tests > UNIT_TESTS_MAX) {
		printf("FAIL more tests than UNIT_TESTS_MAX\n0 passed, %d failed\n", unit_n_tests);
		return 1;
	}
	for (int i = 0; i < unit_n_tests; i++) {
		if (!unit_run(&unit_tests[i]))
			n_failed++;
		else if (!unit_skipped)
			n_passed++;
	}
	printf("%d passed, %d failed\n", n_passed, n_failed);
	return n_failed > 0;
}

#define UNIT_MAIN()                                                                                \
	int main(void)                                                                             \
	{                                                                                          \
		return unit_main();                                                                \
	}

#endif
