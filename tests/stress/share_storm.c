/* SPDX-License-Identifier: MIT */
/*
 * A storm of shared storages: share_storm SECONDS SEED MEMBERS
 *
 * Members of one group in a ring; each sends to the next one:
 *
 *      keeper -> 1 -> 2 -> ... -> keeper      root kills any but the keeper, at
 *                 \                           any moment, and starts it anew
 *                  +-- children
 *
 * A member makes storages, clones them, writes pages, sends, receives, drops,
 * forks and exits. A storage's bytes follow from one seed a page; the seeds travel
 * with it in the note, so who receives it knows what it must hold.
 *
 * In the end all but the keeper are killed and what was on its way is lost: then
 * the keeper must be able to write in place whatever it has, and what it gives
 * back must be gone, but for what a child inherited that found no slot: with so many
 * members that slots run out. An alarm ends who is stuck.
 *
 * A seed gives the same members; how they meet is up to the kernel.
 */
#include "../programs/program.h"
#include "packs.h"
#include "share/home.h"

#include <cowshed-share.h>
#include <dirent.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>

enum { HAVE = 16, PAGES_MOST = 16, PACKS_MOST = 48, MEMBERS_MOST = 64, STUCK = 60 };
enum { FEW = 12, ON_THE_WAY = 8 }; /* that have slots; messages in a link */

struct item {
	struct cow_storage *s;
	uint32_t pages, mode;
	uint64_t seeds[PAGES_MOST];
};

struct note {
	uint32_t pages;
	uint64_t seeds[PAGES_MOST];
};

struct common {
	atomic_int stop, stopped, alone, failed;
	atomic_ulong sent, full, refused, received, steals, writes, forks;
};

static struct common *common;
static struct cow_group *group;
static int members, links[MEMBERS_MOST][2];
static struct item items[HAVE];

static void wrong(const char *what, const struct item *i, uint32_t page)
{
	dprintf(2, "share_storm: process %d, %s: mode %u, page %u of %u\n",
	        getpid(), what, i->mode, page, i->pages);
	atomic_store(&common->failed, 1);
	abort();
}

/* A call of the library that must not fail. */
static void ok(int r, const char *what)
{
	if (r >= 0)
		return;
	dprintf(2, "share_storm: process %d, %s: %d, %s\n", getpid(), what, r,
	        cow_last_error());
	atomic_store(&common->failed, 1);
	abort();
}

/* ---- Storages ------------------------------------------------------------ */

static void look(const struct item *i, const char *when)
{
	const unsigned char *p = cow_storage_data(i->s);

	for (uint32_t k = 0; k < i->pages; k++)
		if (!holds(p + k * PAGE, PAGE, i->seeds[k]))
			wrong(when, i, k);
}

static void rewrite(struct item *i, uint32_t page, uint64_t seed)
{
	unsigned char *p;

	ok(cow_storage_data_mut(i->s, (void **)&p), "for writing");
	fill(p + page * PAGE, PAGE, seed);
	i->seeds[page] = seed;
	atomic_fetch_add(&common->writes, 1);
}

static void drop(struct item *i)
{
	cow_storage_unref(i->s);
	i->s = NULL;
}

static void make(struct item *i, uint64_t *random)
{
	i->pages = 1 + (uint32_t)below(random, PAGES_MOST);
	i->mode = COW_SHARE_CLONE;
	if (below(random, 4))
		ok(cow_group_storage_new(group, i->pages * PAGE,
		                         COW_SHARE_CLONE, &i->s), "new");
	else
		ok(cow_storage_new(i->pages * PAGE, NULL, &i->s), "new");
	for (uint32_t k = 0; k < i->pages; k++)
		rewrite(i, k, next_random(random));
}

static void copy(struct item *to, const struct item *from)
{
	*to = *from;
	ok(cow_storage_lazy_clone(from->s, &to->s), "clone");
}

/* ---- Messages ------------------------------------------------------------ */

static void send_it(struct cow_channel *c, struct item *i, int sealed)
{
	struct note note = { .pages = i->pages };
	struct cow_parcel p = {
		.storage = i->s,
		.length = i->pages * PAGE,
		.mode = sealed ? COW_SHARE_SEALED : COW_SHARE_CLONE,
	};
	long r;

	memcpy(note.seeds, i->seeds, sizeof(note.seeds));
	r = cow_channel_send(c, &p, 1, &note, sizeof(note));
	if (r == -EAGAIN) {
		atomic_fetch_add(&common->full, 1);
		return;
	}
	/* The group's slots are all taken. */
	if (r == -ETOOMANYREFS || r == -EMFILE) {
		atomic_fetch_add(&common->refused, 1);
		return;
	}
	ok((int)r, "send");
	if (sealed)
		i->mode = COW_SHARE_SEALED;
	atomic_fetch_add(&common->sent, 1);
}

static void receive_one(struct cow_channel *c, struct item *i)
{
	struct note note;
	struct cow_parcel p;
	size_t bytes;
	long r = cow_channel_receive(c, &p, 1, &note, sizeof(note), &bytes);

	if (r == -EAGAIN)
		return;
	ok((int)r, "receive");
	check(r == 1 && bytes == sizeof(note));
	i->s = p.storage;
	i->pages = note.pages;
	i->mode = p.mode;
	memcpy(i->seeds, note.seeds, sizeof(i->seeds));
	/* A sealed one that comes twice is one storage: here each is written. */
	if (i->mode == COW_SHARE_SEALED) {
		ok(cow_storage_lazy_clone(p.storage, &i->s), "clone");
		cow_storage_unref(p.storage);
	}
	atomic_fetch_add(&common->received, 1);
	look(i, "received");
}

/* ---- Members ------------------------------------------------------------- */

/* A child has all that its parent had, and what it writes is its own. */
static void child(uint64_t random)
{
	for (int i = 0; i < HAVE; i++) {
		if (items[i].s == NULL)
			continue;
		look(&items[i], "after a fork");
		if (below(&random, 2))
			rewrite(&items[i], 0, next_random(&random));
		look(&items[i], "written by a child");
		if (below(&random, 2))
			drop(&items[i]);
	}
	_exit(0);
}

static void fork_one(uint64_t *random)
{
	pid_t pid = fork();
	int status;

	check(pid >= 0);
	if (pid == 0)
		child(next_random(random));
	atomic_fetch_add(&common->forks, 1);
	for (int i = 0; i < HAVE; i++)
		if (items[i].s != NULL && below(random, 2))
			rewrite(&items[i], 0, next_random(random));
	check(waitpid(pid, &status, 0) == pid && status == 0);
}

static void turn(struct cow_channel *to, struct cow_channel *from,
                 uint64_t *random, int may_fork)
{
	struct item *i = &items[below(random, HAVE)];
	struct item *k = &items[below(random, HAVE)];

	if (i->s == NULL) {
		switch (below(random, 4)) {
		case 0:
			make(i, random);
			break;
		case 1:
			if (k->s != NULL)
				copy(i, k);
			break;
		default:
			receive_one(from, i);
		}
		return;
	}
	switch (below(random, 16)) {
	case 0:
	case 1:
	case 2:
	case 3:
		rewrite(i, (uint32_t)below(random, i->pages),
		        next_random(random));
		break;
	case 4:
		look(i, "in between");
		break;
	case 5:
		if (may_fork && below(random, 8) == 0)
			fork_one(random);
		break;
	case 6:
	case 7:
	case 8:
		look(i, "before its end");
		drop(i);
		break;
	default:
		send_it(to, i, below(random, 16) == 0);
	}
}

/* So is the clone of a sender whose packs were all taken: a memfd of its own. */
static int is_sealed(const struct item *i)
{
	const struct cow__home *h = cow__home_of(i->s);

	return i->mode == COW_SHARE_SEALED || (h && !h->pack);
}

/* All others are dead, but for the root. */
static void last_words(void)
{
	const void *before, *after;
	int count;
	long full, left;

	while (slots_of_others(group) > 1)
		usleep(1000);
	for (int i = 0; i < HAVE; i++)
		for (int k = 0; k < i && items[i].s != NULL; k++)
			if (items[k].s != NULL &&
			    cow_storage_data(items[k].s) ==
			            cow_storage_data(items[i].s))
				drop(&items[i]);
	for (int i = 0; i < HAVE; i++) {
		if (items[i].s == NULL || is_sealed(&items[i]))
			continue;
		before = cow_storage_data(items[i].s);
		rewrite(&items[i], 0, 42);
		after = cow_storage_data(items[i].s);
		look(&items[i], "in the end");
		if (before != after)
			wrong("nobody else has it, and it was copied", &items[i],
			      0);
		atomic_fetch_add(&common->steals, 1);
	}
	full = packs(&count);
	for (int i = 0; i < HAVE; i++)
		if (items[i].s != NULL)
			drop(&items[i]);
	check(count <= PACKS_MOST);
	/* What the dead held waits for somebody to look. */
	ok(cow_trim(), "trim");
	dprintf(1, "share_storm: the keeper had %d packs of %ld KiB, and then ",
	        count, full / 1024);
	left = packs(&count);
	dprintf(1, "%d of %ld\n", count, left / 1024);
	check(crowd ? members > FEW : left == 0);
}

static void member(int self, uint64_t random)
{
	struct cow_channel *to, *from;
	int turns = 50 + (int)below(&random, 5000);

	for (int i = 0; i < members; i++) {
		if (i != self)
			close(links[i][0]);
		if ((i + 1) % members != self)
			close(links[i][1]);
	}
	ok(cow_channel_new(links[self][0], group, 0, &to), "channel");
	ok(cow_channel_new(links[(self + members - 1) % members][1], group, 0,
	                   &from), "channel");
	while (!atomic_load(&common->stop) && (self == 0 || turns-- > 0)) {
		alarm(STUCK);
		turn(to, from, &random, self != 0);
	}
	for (int i = 0; i < HAVE; i++)
		if (items[i].s != NULL)
			look(&items[i], "at the end");
	cow_channel_free(to);
	cow_channel_free(from);
	close(links[self][0]);
	close(links[(self + members - 1) % members][1]);
	if (self == 0) {
		atomic_store(&common->stopped, 1);
		while (!atomic_load(&common->alone))
			usleep(1000);
		last_words();
	}
	_exit(0);
}

/* ---- The root ------------------------------------------------------------ */

static long fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	long n = 0;

	check(d != NULL);
	while (readdir(d) != NULL)
		n++;
	closedir(d);
	return n;
}

static pid_t start_member(int self, uint64_t random)
{
	pid_t pid = fork();

	check(pid >= 0);
	if (pid != 0)
		return pid;
	/* A group of its own, so that the root can wait for all others. */
	if (self == 0)
		check(setpgid(0, 0) == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
	member(self, random | 1);
	return 0;
}

static void ended(int status)
{
	if ((WIFEXITED(status) && WEXITSTATUS(status) == 0) ||
	    (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL))
		return;
	dprintf(2, "share_storm: a member ended with status %#x%s\n", status,
	        WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM
	                ? ": it was stuck" : "");
	atomic_store(&common->failed, 1);
}

static int is_running(pid_t pid)
{
	siginfo_t end = { .si_pid = 0 };

	check(waitid(P_PID, (id_t)pid, &end, WEXITED | WNOHANG | WNOWAIT) == 0);
	return end.si_pid == 0;
}

/* Members, and the children that they left behind. */
static void end_all_others(const pid_t *pids)
{
	int status;

	for (int i = 1; i < members; i++)
		kill(pids[i], SIGKILL);
	while (waitpid(0, &status, 0) > 0)
		ended(status);
	check(errno == ECHILD);
}

static unsigned long storm(int seconds, uint64_t random, pid_t *pids)
{
	struct timespec now;
	unsigned long kills = 0;
	time_t end;

	clock_gettime(CLOCK_MONOTONIC, &now);
	end = now.tv_sec + seconds;
	for (int i = 0; i < members; i++)
		pids[i] = start_member(i, next_random(&random));
	do {
		int victim = 1 + (int)below(&random, (size_t)members - 1);
		int status;

		usleep((useconds_t)below(&random, 2000));
		if (below(&random, 8)) {
			kill(pids[victim], SIGKILL);
			kills++;
		} else if (waitpid(pids[victim], &status, WNOHANG) == 0) {
			continue;
		} else {
			ended(status);
			pids[victim] = start_member(victim, next_random(&random));
			continue;
		}
		check(waitpid(pids[victim], &status, 0) == pids[victim]);
		ended(status);
		pids[victim] = start_member(victim, next_random(&random));
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec < end && !atomic_load(&common->failed));
	return kills;
}

/* A storm in which nothing happened proves nothing. Messages get lost with their receivers
 * alone, a handful each; slots are scarce, but most of the time there is one. */
static void look_at_counts(unsigned long kills)
{
	unsigned long sent = atomic_load(&common->sent), refused = atomic_load(&common->refused),
	              received = atomic_load(&common->received);

	dprintf(1, "share_storm: %lu killed, %lu forks, %lu sent (%lu times no room, %lu times "
	        "no slot), %lu received, %lu writes, %lu stolen in the end\n", kills,
	        atomic_load(&common->forks), sent, atomic_load(&common->full), refused, received,
	        atomic_load(&common->writes), atomic_load(&common->steals));
	check(kills > 0 && sent > refused && received > 0);
	check(received + ON_THE_WAY * (unsigned long)members > sent / 2);
	check(atomic_load(&common->forks) > 0 && atomic_load(&common->steals) > 0);
}

int main(int argc, char **argv)
{
	pid_t pids[MEMBERS_MOST];
	unsigned long kills;
	int status;
	long before;

	check(argc == 4);
	members = atoi(argv[3]);
	check(members > 1 && members <= MEMBERS_MOST);
	dprintf(1, "share_storm: seed %s\n", argv[2]);
	common = mmap(NULL, sizeof(*common), PROT_READ | PROT_WRITE,
	              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(common != MAP_FAILED);
	check(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
	before = fds();
	ok(cow_group_new(&group), "group");
	for (int i = 0; i < members; i++) {
		int small = 4608;

		check(socketpair(AF_UNIX,
		                 SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC,
		                 0, links[i]) == 0);
		check(setsockopt(links[i][0], SOL_SOCKET, SO_SNDBUF, &small,
		                 sizeof(small)) == 0);
	}
	kills = storm(atoi(argv[1]), pattern_start((uint64_t)atoll(argv[2])) | 1, pids);
	atomic_store(&common->stop, 1);
	/* What the keeper sends must have somewhere to go. */
	while (!atomic_load(&common->stopped) && is_running(pids[0]))
		usleep(1000);
	end_all_others(pids);
	for (int i = 0; i < members; i++) {
		close(links[i][0]);
		close(links[i][1]);
	}
	atomic_store(&common->alone, 1);
	check(waitpid(pids[0], &status, 0) == pids[0]);
	ended(status);
	cow_group_unref(group);
	if (fds() != before) {
		dprintf(2, "share_storm: %ld descriptors, before %ld\n", fds(),
		        before);
		atomic_store(&common->failed, 1);
	}
	look_at_counts(kills);
	return atomic_load(&common->failed);
}
