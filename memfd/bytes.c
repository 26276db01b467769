/* SPDX-License-Identifier: MIT */
/*
 * memcpy, memmove, memset and memcmp of our own
 *
 * Another preloaded library may define these names. Its code would run in the helper, a thread
 * without thread-local data, where `__thread` variables of a library crash (memfd/thread.h). It
 * would also run in forked children and under the engine's lock. So the engine and the shim have
 * these functions inside, hidden: the linker binds all calls to them, and no other library sees
 * them. text.c does the same for strings. The tensor library uses libc's, which are faster.
 *
 * Copies of up to 128 bytes read all before they write anything. Longer ones go in lines of 64
 * bytes with aligned stores; both ends overlap the lines. There is no `rep movsb`: where the two
 * addresses differ by a few bytes modulo 4096, some processors take ten times as long for it.
 * `rep stosb` has no such case. It writes past the caches if there is much to write.
 *
 * The compiler must not turn these loops into calls of the same functions (mk/config.mk).
 */
#undef _FORTIFY_SOURCE

#include <stddef.h>
#include <stdint.h>

/* The sanitizers bring functions of their own, which check. */
#if !defined(COW_SANITIZED)

#define LINE ((size_t)64)
#define LEAST 128 /* more than so many bytes go in lines */
#define REPEAT_LEAST 4096

typedef unsigned char part __attribute__((vector_size(16)));

/* At any address. */
typedef struct {
	part v;
} __attribute__((packed, may_alias)) any16;
typedef struct {
	uint64_t v;
} __attribute__((packed, may_alias)) any8;
typedef struct {
	uint32_t v;
} __attribute__((packed, may_alias)) any4;

#define AT(type, p) (((type *)(p))->v)
#define FROM(type, p) (((const type *)(p))->v)

struct line {
	part a, b, c, d;
};

static inline struct line
line_at(const char *p)
{
	return (struct line){ FROM(any16, p), FROM(any16, p + 16), FROM(any16, p + 32),
		              FROM(any16, p + 48) };
}

static inline void
put_line(char *p, struct line l)
{
	AT(any16, p) = l.a;
	AT(any16, p + 16) = l.b;
	AT(any16, p + 32) = l.c;
	AT(any16, p + 48) = l.d;
}

/* At most 128 bytes, which may overlap. */
static inline void
copy_short(char *to, const char *from, size_t n)
{
	char *end = to + n;
	const char *last = from + n;

	if (n > LINE) {
		struct line a = line_at(from), b = line_at(last - LINE);

		put_line(to, a);
		put_line(end - LINE, b);
	} else if (n > 32) {
		part a = FROM(any16, from), b = FROM(any16, from + 16);
		part c = FROM(any16, last - 32), d = FROM(any16, last - 16);

		AT(any16, to) = a;
		AT(any16, to + 16) = b;
		AT(any16, end - 32) = c;
		AT(any16, end - 16) = d;
	} else if (n >= 16) {
		part a = FROM(any16, from), b = FROM(any16, last - 16);

		AT(any16, to) = a;
		AT(any16, end - 16) = b;
	} else if (n >= 8) {
		uint64_t a = FROM(any8, from), b = FROM(any8, last - 8);

		AT(any8, to) = a;
		AT(any8, end - 8) = b;
	} else if (n >= 4) {
		uint32_t a = FROM(any4, from), b = FROM(any4, last - 4);

		AT(any4, to) = a;
		AT(any4, end - 4) = b;
	} else if (n) {
		char a = from[0], b = from[n / 2], c = last[-1];

		to[0] = a;
		to[n / 2] = b;
		end[-1] = c;
	}
}

/* More than 128 bytes, from the start on. `to` may lie before `from`: each line is read before
 * bytes behind it are written, and both ends are read first. */
static void
copy_up(char *to, const char *from, size_t n)
{
	char *end = to + n, *at = (char *)(((uintptr_t)to + 16) & ~(uintptr_t)15);
	struct line last = line_at(from + n - LINE);
	part first = FROM(any16, from);

	from += at - to;
	for (; at < end - LINE; at += LINE, from += LINE)
		put_line(at, line_at(from));
	put_line(end - LINE, last);
	AT(any16, to) = first;
}

/* The same from the end on, for a `to` behind `from`. */
static void
copy_down(char *to, const char *from, size_t n)
{
	char *end = to + n, *at = (char *)((uintptr_t)(end - 1) & ~(uintptr_t)15);
	struct line first = line_at(from);
	part last = FROM(any16, from + n - 16);

	from += at - to;
	for (; at > to + LINE; at -= LINE, from -= LINE)
		put_line(at - LINE, line_at(from - LINE));
	AT(any16, end - 16) = last;
	put_line(to, first);
}

#define OURS __attribute__((visibility("hidden"), used))

OURS void *memmove(void *to, const void *from, size_t n);
OURS void *memcpy(void *to, const void *from, size_t n) __attribute__((alias("memmove")));
OURS void *memset(void *to, int c, size_t n);
OURS int memcmp(const void *a, const void *b, size_t n);

OURS void *
memmove(void *to, const void *from, size_t n)
{
	if (n <= LEAST)
		copy_short(to, from, n);
	else if ((uintptr_t)to - (uintptr_t)from >= n)
		copy_up(to, from, n);
	else
		copy_down(to, from, n);
	return to;
}

/* Fewer than 16 bytes. */
static inline void
set_short(char *to, uint64_t word, size_t n)
{
	if (n >= 8) {
		AT(any8, to) = word;
		AT(any8, to + n - 8) = word;
	} else if (n >= 4) {
		AT(any4, to) = (uint32_t)word;
		AT(any4, to + n - 4) = (uint32_t)word;
	} else if (n) {
		to[0] = to[n / 2] = to[n - 1] = (char)word;
	}
}

static inline void
set_lines(char *to, part v, size_t n)
{
	char *end = to + n;

	AT(any16, to) = v;
	AT(any16, end - 16) = v;
	if (n > 32) {
		AT(any16, to + 16) = v;
		AT(any16, end - 32) = v;
	}
	if (n > LINE) {
		to = (char *)(((uintptr_t)to + 16) & ~(uintptr_t)15);
		for (; to < end - LINE; to += LINE)
			put_line(to, (struct line){ v, v, v, v });
		put_line(end - LINE, (struct line){ v, v, v, v });
	}
}

OURS void *
memset(void *to, int c, size_t n)
{
	uint64_t word = (unsigned char)c * 0x0101010101010101u;

	if (n < 16) {
		set_short(to, word, n);
#if defined(__x86_64__)
	} else if (n >= REPEAT_LEAST) {
		void *at = to;
		size_t left = n;

		__asm__ volatile("rep stosb" : "+D"(at), "+c"(left) : "a"(c) : "memory");
#endif
	} else {
		union {
			uint64_t words[2];
			part v;
		} both = { { word, word } };

		set_lines(to, both.v, n);
	}
	return to;
}

OURS int
memcmp(const void *a, const void *b, size_t n)
{
	const unsigned char *p = a, *q = b;

	for (; n >= 8 && FROM(any8, p) == FROM(any8, q); n -= 8) {
		p += 8;
		q += 8;
	}
	for (; n && *p == *q; n--) {
		p++;
		q++;
	}
	return n ? *p - *q : 0;
}

/* _FORTIFY_SOURCE calls these where it knows the room. */
OURS void *__memcpy_chk(void *to, const void *from, size_t n, size_t room);
OURS void *__memset_chk(void *to, int c, size_t n, size_t room);

OURS void *
__memcpy_chk(void *to, const void *from, size_t n, size_t room)
{
	if (n > room)
		__builtin_trap();
	return memmove(to, from, n);
}
OURS void *__memmove_chk(void *to, const void *from, size_t n, size_t room)
        __attribute__((alias("__memcpy_chk")));

OURS void *
__memset_chk(void *to, int c, size_t n, size_t room)
{
	if (n > room)
		__builtin_trap();
	return memset(to, c, n);
}

#else
extern char cow__bytes_none;
#endif
