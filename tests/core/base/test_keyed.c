/* SPDX-License-Identifier: MIT */
/*
 * The keyed hash is SipHash-2-4: the vectors of its authors, of whole words
 */
#include "core/base/keyed.h"
#include "tests/support/support.h"

#include <string.h>

/* The key's bytes are 0 to 15, the input's 0 to 8n - 1. */
START_TEST(hashes_as_its_authors_say)
{
	static const uint64_t wanted[] = { 0x726fdb47dd0e0e31u, 0x93f5f5799a932462u,
		                           0x3f2acc7f57c29bdbu };
	unsigned char bytes[16];
	struct cow__hash_key key;
	uint64_t words[2];

	for (unsigned i = 0; i < sizeof(bytes); i++)
		bytes[i] = (unsigned char)i;
	memcpy(&key, bytes, sizeof(key));
	memcpy(words, bytes, sizeof(words));
	for (unsigned n = 0; n < 3; n++)
		ck_assert_uint_eq(cow__keyed_hash(&key, words, n), wanted[n]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("keyed");
	TCase *tcase = add_case(suite, "keyed");

	tcase_add_test(tcase, hashes_as_its_authors_say);
	return run_suite(suite);
}
