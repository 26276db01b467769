/* SPDX-License-Identifier: MIT */
/*
 * The broker's users, and what each of them has
 *
 * A limit for each user alone limits nobody who has many user ids. A person may have
 * tens of thousands of subordinate ones (subuid(5)), and a namespace can use them all.
 * So they count as their owner. And all users but the broker's own and root together
 * leave a part of everything, so that no set of them can take all.
 *
 * An entry lives as long as its user has something, so the table is bounded by the
 * connections and the objects that are there.
 */
#include "cli/broker.h"

#include <errno.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUCKETS 4096u

struct range {
	uint32_t from, count, owner;
};

static struct broker_limit limits[BROKER_KINDS];
static uint32_t all[BROKER_KINDS], of_others[BROKER_KINDS];
static struct broker_user *buckets[BUCKETS];
static struct range *ranges;
static size_t nranges;
static uint32_t users, own_uid;
static struct broker_hash_key key;

static bool is_own(uint32_t uid)
{
	return uid == 0 || uid == own_uid;
}

/* ---- Subordinate users ----------------------------------------------------- */

static bool number(const char *text, uint32_t *ret)
{
	char *end;
	unsigned long n;

	errno = 0;
	n = strtoul(text, &end, 10);
	if (errno != 0 || *text < '0' || *text > '9' || *end != 0 ||
	    n > UINT32_MAX)
		return false;
	*ret = (uint32_t)n;
	return true;
}

/* "name:first:count", or a user id for the name. The containers of root, or of the
 * broker's user, do not count as that user, whose part they must not take. The owner
 * may be unknown here, too. Then the range counts as one user. */
static bool parse_range(char *line, struct range *ret)
{
	char *rest = line, *name = strsep(&rest, ":");
	char *first = strsep(&rest, ":"), *count = strsep(&rest, ":\n");
	const struct passwd *p;

	if (first == NULL || count == NULL || !number(first, &ret->from) ||
	    !number(count, &ret->count))
		return false;
	p = getpwnam(name);
	if (p != NULL)
		ret->owner = p->pw_uid;
	else if (!number(name, &ret->owner))
		ret->owner = ret->from;
	if (is_own(ret->owner))
		ret->owner = ret->from;
	return true;
}

static int read_ranges(const char *path)
{
	FILE *f = fopen(path, "re");
	char *line = NULL;
	size_t room = 0;
	int r = 0;

	nranges = 0;
	if (f == NULL)
		return 0; /* there are none */
	while (r == 0 && getline(&line, &room, f) >= 0) {
		struct range range, *more;

		if (!parse_range(line, &range))
			continue;
		more = realloc(ranges, (nranges + 1) * sizeof(*ranges));
		r = more == NULL ? -ENOMEM : 0;
		if (r == 0) {
			ranges = more;
			ranges[nranges++] = range;
		}
	}
	free(line);
	fclose(f);
	return r;
}

/* The user that this one counts as. */
static uint32_t person(uint32_t uid)
{
	for (size_t i = 0; i < nranges; i++)
		if (!is_own(uid) && uid - ranges[i].from < ranges[i].count)
			return ranges[i].owner;
	return uid;
}

/* ---- What each has ----------------------------------------------------------- */

int broker_users_open(const struct broker_limit l[BROKER_KINDS],
                      const char *subordinates)
{
	int r = broker_hash_key(&key);

	own_uid = geteuid();
	memcpy(limits, l, sizeof(limits));
	return r == 0 && subordinates != NULL ? read_ranges(subordinates) : r;
}

uint32_t broker_users_count(void)
{
	return users;
}

static struct broker_user **place_of_user(uint32_t id)
{
	const uint64_t word = id;
	struct broker_user **p =
		&buckets[broker_hash(&key, &word, 1) % BUCKETS];

	while (*p != NULL && (*p)->id != id)
		p = &(*p)->next;
	return p;
}

static void forget_if_gone(struct broker_user *u)
{
	struct broker_user **p = place_of_user(u->id);

	for (int i = 0; i < BROKER_KINDS; i++)
		if (u->has[i] > 0)
			return;
	*p = u->next;
	free(u);
	users--;
}

int broker_user_enter(uint32_t uid, struct broker_user **ret)
{
	uint32_t id = person(uid);
	struct broker_user **p = place_of_user(id), *u = *p;
	int r;

	if (u == NULL) {
		u = calloc(1, sizeof(*u));
		if (u == NULL)
			return -ENOMEM;
		u->id = id;
		*p = u;
		users++;
	}
	r = broker_user_take(u, BROKER_CLIENT);
	if (r < 0)
		forget_if_gone(u);
	else
		*ret = u;
	return r;
}

int broker_user_take(struct broker_user *u, enum broker_kind kind)
{
	const struct broker_limit *l = &limits[kind];
	bool own = is_own(u->id);

	if (all[kind] >= l->all || u->has[kind] >= l->of_user ||
	    (!own && of_others[kind] >= l->of_others))
		return -ENOSPC;
	all[kind]++;
	of_others[kind] += !own;
	u->has[kind]++;
	return 0;
}

void broker_user_give(struct broker_user *u, enum broker_kind kind)
{
	all[kind]--;
	of_others[kind] -= !is_own(u->id);
	u->has[kind]--;
	forget_if_gone(u);
}
