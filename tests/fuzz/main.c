/* SPDX-License-Identifier: MIT */
/*
 * Fuzzing without a fuzzer
 *
 * Where there is no libFuzzer each target replays its corpus, tests/fuzz/corpus/ and
 * its name, and a fixed number of mutations of each file: the same ones each time. A slow
 * target says how many, in fuzz_rounds.
 * A target that finds something traps.
 *
 *     fuzz_wire [file...]
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { BYTES_MAX = 70000, ROUNDS = 200000 };

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t count);
extern const unsigned fuzz_rounds __attribute__((weak));

static uint8_t original[BYTES_MAX], changed[BYTES_MAX];
static uint64_t state = 1;

static uint64_t
next(void)
{
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return state * 0x2545f4914f6cdd1d;
}

/* One to four changes: a byte, a word of an interesting value, the length. */
static size_t
mutate(size_t count)
{
	static const uint64_t values[] = { 0, 1, 0x7f, 0x80, 0xffff, 0x7fffffff,
		                           0x80000000, UINT64_MAX,
		                           INT64_MAX, 1ull << 47 };

	memcpy(changed, original, count);
	for (uint64_t n = next() % 4 + 1; n > 0 && count > 8; n--) {
		uint64_t v = values[next() % 10] + next() % 3 - 1;

		switch (next() % 8) {
		case 0:
			count -= next() % 8;
			break;
		case 1:
		case 2:
		case 3:
			changed[next() % count] = (uint8_t)next();
			break;
		default:
			memcpy(changed + next() % (count - 8), &v,
			       (size_t)1 << next() % 4);
		}
	}
	return count;
}

static int
replay(const char *path, uint64_t rounds)
{
	FILE *f = fopen(path, "rb");
	size_t count;

	if (!f) {
		perror(path);
		return 1;
	}
	count = fread(original, 1, sizeof(original), f);
	fclose(f);
	LLVMFuzzerTestOneInput(original, count);
	for (uint64_t i = 0; i < rounds; i++)
		LLVMFuzzerTestOneInput(changed, mutate(count));
	printf("ok %s\n", path);
	return 0;
}

int
main(int argc, char **argv)
{
	const char *name = strrchr(argv[0], '/');
	char folder[256], path[600];
	const struct dirent *e;
	int bad = 0, n = 0;
	DIR *d;

	for (int i = 1; i < argc; i++)
		bad |= replay(argv[i], 0);
	if (argc > 1)
		return bad;
	name = strstr(name ? name : argv[0], "fuzz_");
	snprintf(folder, sizeof(folder), "tests/fuzz/corpus/%s",
	         name ? name + 5 : "");
	d = opendir(folder);
	if (!d) {
		perror(folder);
		return 1;
	}
	while ((e = readdir(d)))
		if (e->d_name[0] != '.') {
			snprintf(path, sizeof(path), "%s/%s", folder,
			         e->d_name);
			bad |= replay(path, &fuzz_rounds ? fuzz_rounds : ROUNDS);
			n++;
		}
	closedir(d);
	return bad || n == 0;
}
