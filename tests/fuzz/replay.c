/* SPDX-License-Identifier: MIT */
/*
 * A fuzz target without a fuzzer: runs the files it is given, and many inputs
 * made of a fixed seed (FUZZ_RUNS)
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int main(int argc, char **argv)
{
	static uint8_t buf[1 << 16];
	const char *runs = getenv("FUZZ_RUNS");
	uint64_t x = 88172645463325252u;

	for (int i = 1; i < argc; i++) {
		FILE *f = fopen(argv[i], "rb");

		if (!f) {
			perror(argv[i]);
			return 1;
		}
		LLVMFuzzerTestOneInput(buf, fread(buf, 1, sizeof(buf), f));
		fclose(f);
	}
	for (long n = runs ? atol(runs) : 20000; n > 0; n--) {
		size_t size = 8 + x % 56;

		for (size_t i = 0; i < size; i++) {
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
			/* Mostly small numbers. */
			buf[i] = (uint8_t)(x >> 24 & 3 ? x % 13 : x);
		}
		LLVMFuzzerTestOneInput(buf, size);
	}
	return 0;
}
