/* SPDX-License-Identifier: MIT */
/*
 * Small transpositions. See the header. Dense ones go to squares.h, in the widest vectors of
 * the processor; what those leave is moved unit by unit.
 */
#include "tensor/transpose.h"
#include "core/base/base.h"
#include "tensor/vector.h"

/* Unit by unit, the longer side innermost. */
#define ONE_BY_ONE(name, copy)                                                 \
	static void name(char *to, int64_t to_i, int64_t to_j,                 \
	                 const char *from, int64_t from_i, int64_t from_j,     \
	                 int64_t ni, int64_t nj, int64_t bytes)                \
	{                                                                      \
		(void)bytes;                                                   \
		if (ni < nj) {                                                 \
			for (int64_t i = 0; i < ni; i++)                       \
				for (int64_t j = 0; j < nj; j++)               \
					copy(to + i * to_i + j * to_j,         \
					     from + i * from_i + j * from_j);  \
			return;                                                \
		}                                                              \
		for (int64_t j = 0; j < nj; j++)                               \
			for (int64_t i = 0; i < ni; i++)                       \
				copy(to + i * to_i + j * to_j,                 \
				     from + i * from_i + j * from_j);          \
	}
#define COPY_1(t, f) memcpy(t, f, 1)
#define COPY_2(t, f) memcpy(t, f, 2)
#define COPY_4(t, f) memcpy(t, f, 4)
#define COPY_8(t, f) memcpy(t, f, 8)
#define COPY_12(t, f) memcpy(t, f, 12)
#define COPY_16(t, f) memcpy(t, f, 16)
#define COPY_ANY(t, f) memcpy(t, f, (size_t)bytes)
ONE_BY_ONE(one_1, COPY_1)
ONE_BY_ONE(one_2, COPY_2)
ONE_BY_ONE(one_4, COPY_4)
ONE_BY_ONE(one_8, COPY_8)
ONE_BY_ONE(one_12, COPY_12)
ONE_BY_ONE(one_16, COPY_16)
ONE_BY_ONE(one_any, COPY_ANY)

static cow__squares_fn *const levels[COW__VECTOR_LEVELS] = {
		cow__squares_base,
#if defined(__x86_64__)
		cow__squares_avx2,
		cow__squares_avx512,
#endif
	};

cow__squares_fn *
cow__squares(int level)
{
	return cow__vector_can(level) ? levels[level] : NULL;
}

void
cow__transpose(char *to, int64_t to_i, int64_t to_j, const char *from,
               int64_t from_i, int64_t from_j, int64_t ni, int64_t nj,
               int64_t bytes)
{
	/* The widest level. Threads that race find the same. */
	static int best = -1;
	int level = __atomic_load_n(&best, __ATOMIC_RELAXED);

	if (level < 0) {
		for (level = COW__VECTOR_LEVELS; !cow__squares(--level);)
			;
		__atomic_store_n(&best, level, __ATOMIC_RELAXED);
	}
	if (to_i != bytes || (from_j != bytes && nj > 1))
		level = -1;
	for (; ni > 0 && level >= 0; level--) {
		int64_t done = levels[level](to, to_j, from, from_i, ni, nj,
		                             bytes);

		to += done * to_i;
		from += done * from_i;
		ni -= done;
	}
	if (ni == 0)
		return;
	switch (bytes) {
	case 1:
		one_1(to, to_i, to_j, from, from_i, from_j, ni, nj, 1);
		break;
	case 2:
		one_2(to, to_i, to_j, from, from_i, from_j, ni, nj, 2);
		break;
	case 4:
		one_4(to, to_i, to_j, from, from_i, from_j, ni, nj, 4);
		break;
	case 8:
		one_8(to, to_i, to_j, from, from_i, from_j, ni, nj, 8);
		break;
	case 12:
		one_12(to, to_i, to_j, from, from_i, from_j, ni, nj, 12);
		break;
	case 16:
		one_16(to, to_i, to_j, from, from_i, from_j, ni, nj, 16);
		break;
	default:
		one_any(to, to_i, to_j, from, from_i, from_j, ni, nj, bytes);
	}
}
