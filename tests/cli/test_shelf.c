/* SPDX-License-Identifier: MIT */
/*
 * The broker's shelf, in this process: its hash, and what a client can aim at
 */
#include "cli/broker.h"
#include "tests/support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MANY = 20000, BUCKETS = 65536 };

/* The vectors of the authors of SipHash-2-4. The key's bytes are 0 to 15, the input's 0
 * to 8n - 1. */
START_TEST(hashes_as_its_authors_say)
{
	static const uint64_t wanted[] = { 0x726fdb47dd0e0e31u, 0x93f5f5799a932462u,
		                           0x3f2acc7f57c29bdbu };
	unsigned char bytes[16];
	struct broker_hash_key key;
	uint64_t words[2];

	for (unsigned i = 0; i < sizeof(bytes); i++)
		bytes[i] = (unsigned char)i;
	memcpy(&key, bytes, sizeof(key));
	memcpy(words, bytes, sizeof(words));
	for (unsigned n = 0; n < 3; n++)
		ck_assert_uint_eq(broker_hash(&key, words, n), wanted[n]);
}
END_TEST

static const struct broker_limits limits = {
	.of = { { 16, 12, 8 }, { 16, 12, 8 }, { 32, 24, 16 } },
	.objects_of_client = 6,
};

/* How many of MANY items meet in the fullest bucket. At random it is 5 or 6. */
static unsigned fullest(void (*item)(unsigned i, struct cow_broker_item *ret))
{
	unsigned *in = calloc(BUCKETS, sizeof(*in)), most = 0;

	must(in);
	for (unsigned i = 1; i <= MANY; i++) {
		struct cow_broker_item it = { .bytes = 0 };
		uint32_t at;

		item(i, &it);
		at = broker_shelf_bucket(&it);
		ck_assert_uint_lt(at, BUCKETS);
		if (++in[at] > most)
			most = in[at];
	}
	free(in);
	return most;
}

/* Half of the product cancels the other half, under any secret that is added. */
static void aimed(unsigned i, struct cow_broker_item *ret)
{
	ret->token = (struct cow_token){ i, i * 0x9e3779b97f4a7c15u };
}

static void stepped(unsigned i, struct cow_broker_item *ret)
{
	ret->token = (struct cow_token){ (uint64_t)i << 40, 7 };
}

static void named(unsigned i, struct cow_broker_item *ret)
{
	snprintf(ret->name, sizeof(ret->name), "%u", i);
}

START_TEST(tokens_do_not_meet_in_one_bucket)
{
	ok(broker_shelf_open(&limits));
	ck_assert_uint_le(fullest(aimed), 16);
	ck_assert_uint_le(fullest(stepped), 16);
	ck_assert_uint_le(fullest(named), 16);
}
END_TEST

/* What a client leaves behind the end of a name is not part of it. */
START_TEST(name_ends_at_its_zero)
{
	struct cow_broker_item x = { .name = "weights" }, y = x;

	ok(broker_shelf_open(&limits));
	memcpy(y.name + 8, "rest", 4);
	y.token.a = 9;
	ck_assert_uint_eq(broker_shelf_bucket(&x), broker_shelf_bucket(&y));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("shelf");
	TCase *tcase = add_case(suite, "shelf");

	tcase_add_test(tcase, hashes_as_its_authors_say);
	tcase_add_test(tcase, tokens_do_not_meet_in_one_bucket);
	tcase_add_test(tcase, name_ends_at_its_zero);
	return run_suite(suite);
}
