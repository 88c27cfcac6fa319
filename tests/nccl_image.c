/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Prints what nccl_elf__read() makes of each file, as key=value lines, for
 *scripts/nccl-versions.py.
 *
 *	nccl_image [--table] [--code-only] [--arch x86_64|arm64] [--repeat N] FILE...
 *
 * --table prints the API table. --code-only takes each file for a stripped one of a release that
 *nobody knows: layout and list of communicators rest on machine code alone. --repeat reads each
 *file N times and prints the mean time.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../src/nccl_elf.h"
#include "../src/nccl_layout.h"
#include "../src/util.h"

static void print_layout(const struct nccl_layout *layout)
{
	static const char *const sources[] = {"none", "table", "code"};

	printf("layout=%s\nlayout_version=%d\nsize=%d\nstartMagic=%d\nendMagic=%d\ncommHash=%d\n",
	       sources[layout->source], layout->version, layout->size, layout->start_magic,
	       layout->end_magic, layout->comm_hash);
	printf("rank=%d\nnRanks=%d\ncudaDev=%d\nnvmlDev=%d\nbusId=%d\n", layout->rank,
	       layout->n_ranks, layout->cuda_dev, layout->nvml_dev, layout->bus_id);
	printf("node=%d\nnNodes=%d\nlocalRank=%d\nlocalRanks=%d\ninitState=%d\nasyncResult=%d\n",
	       layout->node, layout->n_nodes, layout->local_rank, layout->local_ranks,
	       layout->init_state, layout->async_result);
	printf("abortFlag=%d\nseqNumber=%d\nn_seq=%d\nconfig.commName=%d\n", layout->abort_flag,
	       layout->seq_number, layout->n_seq, layout->comm_name_ptr);
	printf("proxyState=%d\nproxyState.asyncResult=%d\n", layout->proxy_state,
	       layout->proxy_result);
}

static void print_image(const struct nccl_image *image)
{
	printf("status=%d\nreason=%s\nversion=%d\n", image->status, nccl_image__reason(image),
	       image->version);
	printf("from_symtab=%d\nexec_delta=%#llx\n", image->from_symtab,
	       (unsigned long long)image->exec_delta);
	printf("comms_vaddr=%#llx\nn_comms_vaddr=%#llx\ncomms_from_code=%d\n",
	       (unsigned long long)image->comms_vaddr, (unsigned long long)image->n_comms_vaddr,
	       image->comms_from_code);
	print_layout(&image->layout);
	printf("n_exported=%u\nn_unknown=%u\n", image->n_exported, image->n_unknown);
	for (int i = 0; i < image->n_unknown && i < NCCL_IMAGE_MAX_UNKNOWN; i++)
		printf("unknown=%s\n", image->unknown[i]);
	for (int i = 0; i < NCCL_FN_PROBED; i++)
		if (image->entry[i])
			printf("entry.%s=%#llx\n", nccl_functions[i].symbol,
			       (unsigned long long)image->entry[i]);
}

/* Every row of the API table: symbol, first release, probed or why not. */
static void print_table(void)
{
	for (unsigned int i = 0; i < nccl_n_functions; i++)
		printf("%s\t%d\t%s\n", nccl_functions[i].symbol, nccl_functions[i].since,
		       i < NCCL_FN_PROBED ? "probed" : nccl_functions[i].why_unprobed);
}

static int print_file(const struct nccl_elf_options *options, const char *path, int repeat)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct nccl_image image;
	uint64_t start;
	int err = fd < 0 ? -errno : 0;

	start = now_ns();
	for (int i = 0; !err && i < repeat; i++)
		err = nccl_elf__read(options, fd, &image);
	if (err) {
		fprintf(stderr, "%s: %s\n", path, strerror(-err));
		return 1;
	}
	printf("file=%s\ntime_us=%.1f\n", path, (now_ns() - start) / 1e3 / repeat);
	print_image(&image);
	return 0;
}

int main(int argc, char **argv)
{
	struct nccl_elf_options options = {.arch = NCCL_ARCH_HOST};
	int repeat = 1, failed = 0;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--code-only"))
			options.code_only = true;
		else if (!strcmp(argv[i], "--table"))
			print_table();
		else if (!strcmp(argv[i], "--arch") && i + 1 < argc)
			options.arch =
				strcmp(argv[++i], "arm64") ? NCCL_ARCH_X86_64 : NCCL_ARCH_ARM64;
		else if (!strcmp(argv[i], "--repeat") && i + 1 < argc)
			repeat = strtol(argv[++i], NULL, 10);
		else
			failed |= print_file(&options, argv[i], repeat > 0 ? repeat : 1);
	}
	return failed;
}
