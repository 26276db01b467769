/* SPDX-License-Identifier: MIT */
/*
 * A fork storm: fork_storm SECONDS SEED PROCESSES LARGEST
 *
 * A tree of processes, each with up to three actors (threads) that allocate,
 * map, rewrite, copy, clone, grow, free, fork, nest, exec, exit and kill one
 * another, for so many seconds (0: for ever) and with at most so many processes
 * at a time. Some give up privileges, and some of these attack their relatives.
 *
 *   root --+-- process --+-- process ...      the root adopts orphans and looks
 *          |             +-- killed           how each one ended
 *          +-- process ------ orphan
 *
 * blocks.h has the blocks, and says what they must hold. So does a child, for it
 * has its parent's notes of that moment, and looks at every byte. An actor notes
 * which of its blocks it is about to change: of those of other threads the child
 * knows nothing then.
 *
 * Each process has its random numbers from its parent's, so a seed gives the
 * same programs; how they meet is up to the kernel.
 */
#include "blocks.h"
#include "gives_up.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

enum { ACTORS = 3, BLOCKS = 8, CHILDREN = 4 };
enum { TURNS = 60, PLACES = 256, NOTHING = -1 };

struct actor {
	struct block blocks[BLOCKS];
	pid_t children[CHILDREN];
	uint64_t random;
	struct cow_rewrite *rewrite; /* that has begun */
	atomic_int changing[2]; /* blocks that are not as the model says */
	pthread_t thread;
	int runs;
};

/*
 * What all processes see. A place is taken by who forks and then by its child.
 * Either may be killed at any moment, so it is the root that finds places free
 * again, by asking whether their owners live.
 */
struct common {
	atomic_int places[PLACES], stop, failed;
	atomic_ulong forks, bytes, kills, execs, rewrites, clones, strangers;
};

static struct actor actors[ACTORS];
static struct common *common;
static int processes, root_gone[2];
static int threaded; /* this process ever had threads */
static atomic_int leaving;
static char *self;

/* Which mappings are there, and of which files? */
static void tell_mappings(uintptr_t from, uintptr_t to)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long start, end;
	char line[512];

	while (maps && fgets(line, sizeof(line), maps))
		if (sscanf(line, "%lx-%lx", &start, &end) == 2 && start < to && end > from)
			dprintf(2, "  %s", line);
	if (maps)
		fclose(maps);
}

static void wrong(const struct block *b, const unsigned char *p, size_t i, const char *when)
{
	uint64_t found, right = 0;

	memcpy(&found, p + i * STRIPE, sizeof(found));
	if (b->seeds[i])
		fill(&right, sizeof(right), b->seeds[i]);
	dprintf(2, "fork_storm: process %d, %s: block %p of %zu bytes%s, at %p, stripe %zu: "
	        "seed %#lx says %#lx, found %#lx\n", getpid(), when, (void *)b->p, b->bytes,
	        b->mapped ? ", mapped" : "", (const void *)p, i, b->seeds[i], right, found);
	tell_mappings((uintptr_t)p, (uintptr_t)p + b->bytes);
	atomic_store(&common->failed, 1);
	abort();
}

static void look(const struct block *b, const char *when)
{
	if (b->p == NULL)
		return;
	look_at(b, b->p, when);
	atomic_fetch_add(&common->bytes, b->bytes);
}

static void look_at_all(const struct actor *a, const char *when)
{
	int i;

	for (i = 0; i < BLOCKS; i++)
		look(&a->blocks[i], when);
}

/* ---- Processes ----------------------------------------------------------- */

static int over(void)
{
	struct pollfd gone = { .fd = root_gone[0] };

	return atomic_load(&common->stop) || atomic_load(&common->failed) ||
	       poll(&gone, 1, 0) != 0;
}

/* Somebody waited for a child of ours. */
static void ended(int status)
{
	if ((WIFEXITED(status) && WEXITSTATUS(status) == 0) ||
	    (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL))
		return;
	dprintf(2, "fork_storm: a process ended with status %#x\n", status);
	atomic_store(&common->failed, 1);
}

/* Looks whether a child has ended; `how` as for waitpid(). */
static void reap(struct actor *a, int i, int how)
{
	int status;

	if (a->children[i] && waitpid(a->children[i], &status, how) > 0) {
		a->children[i] = 0;
		ended(status);
	}
}

static void process(int self_index);

/* The others' blocks are the child's now, but for what was being changed. */
static void inherit(int self_index)
{
	int i, k;

	for (i = 0; i < ACTORS; i++) {
		struct actor *a = &actors[i];

		memset(a->children, 0, sizeof(a->children));
		a->runs = 0;
		/* Of another thread's it is not known whether it has ended. */
		if (i == self_index && a->rewrite != NULL)
			check(cow_rewrite_end(a->rewrite, true) == -ESTALE);
		a->rewrite = NULL;
		for (k = 0; k < 2; k++) {
			int changing = atomic_exchange(&a->changing[k], NOTHING);

			if (i != self_index && changing != NOTHING)
				a->blocks[changing].p = NULL;
		}
	}
}

static void look_around(uint64_t *random, int at_all)
{
	int i;

	for (i = 0; i < ACTORS; i++)
		if (at_all)
			look_at_all(&actors[i], "after a fork");
		else
			look(&actors[i].blocks[below(random, BLOCKS)],
			     "after a fork");
}

static void exec_nothing(void)
{
	char *argv[] = { self, NULL };

	execv(self, argv);
	_exit(126);
}

static int take_place(void)
{
	int i, nobody;

	for (i = 0; i < processes; i++) {
		nobody = 0;
		if (atomic_compare_exchange_strong(&common->places[i], &nobody,
		                                   getpid()))
			return i;
	}
	return NOTHING;
}

/* Starts a process; 0 if there may be no more. */
static pid_t storm_fork(struct actor *a)
{
	uint64_t random = next_random(&a->random);
	size_t how = below(&a->random, 16);
	int place = take_place();
	pid_t child;

	if (place == NOTHING || over())
		return 0;
	atomic_fetch_add(&common->forks, 1);
	if (how == 0) {
		atomic_fetch_add(&common->execs, 1);
		child = vfork();
		if (child == 0)
			exec_nothing();
	} else if (how == 1 && !threaded) {
		child = _Fork();
	} else {
		child = fork();
	}
	check(child >= 0);
	atomic_store(&common->places[place], child > 0 ? child : getpid());
	if (child > 0)
		return child;
	close(root_gone[1]);
	threaded = 0;
	a->random = random | 1;
	inherit((int)(a - actors));
	look_around(&a->random, how < 8);
	if (how == 11) {
		atomic_fetch_add(&common->strangers, 1);
		gives_up(&a->random);
		if (becomes_stranger()) {
			attack();
			kill(getpid(), SIGKILL); /* its own memory may be rubbish now */
		}
	}
	if (how > 10)
		_exit(0); /* a mayfly */
	if (how == 2) {
		atomic_fetch_add(&common->execs, 1);
		exec_nothing();
	}
	process((int)(a - actors));
	_exit(0);
}

static void child_turn(struct actor *a)
{
	int i = (int)below(&a->random, CHILDREN);

	if (a->children[i] && below(&a->random, 4) == 0) {
		atomic_fetch_add(&common->kills, 1);
		kill(a->children[i], SIGKILL);
		reap(a, i, 0);
	} else if (a->children[i]) {
		reap(a, i, below(&a->random, 4) ? WNOHANG : 0);
	} else {
		a->children[i] = storm_fork(a);
	}
}

/* The new bytes are written on other pages. The block has the old ones until the end, so a
 * child may look at it. */
static void rewrite_elsewhere(struct actor *a, int i)
{
	struct block *b = &a->blocks[i];
	struct cow_range range = { b->p, b->bytes };
	uint64_t seed = next_random(&a->random) | 1;
	int keep = below(&a->random, 4) > 0;
	size_t k;
	void *at;

	if (!cow_rewrite_begin || cow_rewrite_begin(&range, &at, &a->rewrite) != 0)
		return;
	atomic_fetch_add(&common->rewrites, 1);
	atomic_store(&a->changing[0], NOTHING);
	fill_for(b, at, seed);
	if (below(&a->random, 2))
		child_turn(a);
	look(b, "while it is rewritten elsewhere");
	atomic_store(&a->changing[0], i);
	check(cow_rewrite_end(a->rewrite, keep) == 0);
	a->rewrite = NULL;
	for (k = 0; keep && k < stripes(b->bytes); k++)
		b->seeds[k] = seed + k;
	look(b, "after it was rewritten elsewhere");
}

/* A clone keeps its bytes, whatever becomes of the block. */
static void clone_turn(struct actor *a, int i)
{
	static _Thread_local struct block before;
	struct block *b = &a->blocks[i];
	struct cow_storage *storage, *clone;
	size_t offset;

	if (!cow_storage_from_ptr || cow_storage_from_ptr(b->p, &offset, &storage) != 0)
		return;
	before = *b;
	check(cow_storage_lazy_clone(storage, &clone) == 0);
	atomic_fetch_add(&common->clones, 1);
	if (below(&a->random, 3) == 0) {
		announce(b, &a->random);
	} else if (below(&a->random, 2)) {
		rewrite_elsewhere(a, i);
		atomic_store(&a->changing[0], i);
	} else {
		rewrite_some(b, &a->random);
	}
	look_at(&before, (const unsigned char *)cow_storage_data(clone) + offset, "in a clone");
	(void)cow_storage_unref(clone);
	(void)cow_storage_unref(storage);
	look(b, "after its clone's end");
}

static void change(struct actor *a, int i)
{
	struct block *b = &a->blocks[i];
	int k = (int)below(&a->random, BLOCKS);

	switch (below(&a->random, 12)) {
	case 0:
		look(b, "before the end of a block");
		drop(b);
		break;
	case 1:
		resize(b, &a->random);
		break;
	case 2:
		if (k != i && a->blocks[k].p != NULL)
			copy(b, &a->blocks[k], &a->random);
		break;
	case 3:
		look(b, "in between");
		break;
	case 4:
		empty_some(b, &a->random);
		break;
	case 5:
		announce(b, &a->random);
		break;
	case 6:
	case 7:
		rewrite_elsewhere(a, i);
		break;
	case 8:
		clone_turn(a, i);
		break;
	default:
		rewrite_some(b, &a->random);
	}
}

static void block_turn(struct actor *a)
{
	int i = (int)below(&a->random, BLOCKS);

	atomic_store(&a->changing[0], i);
	if (a->blocks[i].p == NULL)
		make(&a->blocks[i], &a->random);
	else
		change(a, i);
	atomic_store(&a->changing[0], NOTHING);
}

static void *act(void *arg)
{
	struct actor *a = arg;

	while (!atomic_load(&leaving) && !over()) {
		if (below(&a->random, 8) == 0)
			child_turn(a);
		else
			block_turn(a);
	}
	return NULL;
}

static void start_threads(int self_index)
{
	uint64_t *random = &actors[self_index].random;
	int i;

	for (i = 0; i < ACTORS; i++) {
		if (i == self_index || below(random, 4) > 0)
			continue;
		threaded = actors[i].runs = 1;
		actors[i].random = next_random(random) | 1;
		check(pthread_create(&actors[i].thread, NULL, act,
		                     &actors[i]) == 0);
	}
}

static void leave(int self_index)
{
	int i, k;

	atomic_store(&leaving, 1);
	for (i = 0; i < ACTORS; i++) {
		if (actors[i].runs)
			pthread_join(actors[i].thread, NULL);
		/* Some parents wait, others leave orphans. */
		for (k = 0; k < CHILDREN; k++)
			if (below(&actors[self_index].random, 2))
				reap(&actors[i], k, 0);
	}
	for (i = 0; i < ACTORS; i++)
		look_at_all(&actors[i], "at the end");
}

static void process(int self_index)
{
	struct actor *a = &actors[self_index];
	int turns = (int)below(&a->random, TURNS);

	atomic_store(&leaving, 0);
	start_threads(self_index);
	while (turns-- > 0 && !over()) {
		if (below(&a->random, 64) == 0) {
			atomic_fetch_add(&common->strangers, 1);
			gives_up(&a->random);
		} else if (below(&a->random, 4) == 0)
			child_turn(a);
		else
			block_turn(a);
	}
	leave(self_index);
}

/* ---- The root ------------------------------------------------------------ */

static void adopt(int how)
{
	int status;

	while (waitpid(-1, &status, how) > 0)
		ended(status);
}

static void free_places(void)
{
	int i, owner;

	for (i = 0; i < processes; i++) {
		owner = atomic_load(&common->places[i]);
		if (owner != 0 && kill(owner, 0) < 0)
			atomic_compare_exchange_strong(&common->places[i],
			                               &owner, 0);
	}
}

static void root(int seconds)
{
	struct actor *a = &actors[0];
	time_t end = time(NULL) + seconds;

	while (!over() && (seconds == 0 || time(NULL) < end)) {
		block_turn(a);
		if (storm_fork(a) == 0)
			sched_yield();
		adopt(WNOHANG);
		free_places();
	}
	atomic_store(&common->stop, 1);
	adopt(0);
	look_at_all(a, "at the end");
}

int main(int argc, char **argv)
{
	int i, k;

	if (argc < 5)
		return 0; /* one of those that exec */
	self = argv[0];
	largest = (size_t)atol(argv[4]);
	processes = atoi(argv[3]);
	check(processes > 0 && processes <= PLACES);
	check(largest >= STRIPE && largest <= LARGEST_STRIPES * STRIPE);
	common = mmap(NULL, sizeof(*common), PROT_READ | PROT_WRITE,
	              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(common != MAP_FAILED);
	check(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
	/* Only the root has the end for writing: all others see it go. */
	check(pipe2(root_gone, O_CLOEXEC) == 0);
	for (i = 0; i < ACTORS; i++)
		for (k = 0; k < 2; k++)
			actors[i].changing[k] = NOTHING;
	actors[0].random = pattern_start((uint64_t)atoll(argv[2])) | 1;
	root(atoi(argv[1]));
	dprintf(1, "fork_storm: %lu forks, %lu killed, %lu execs, %lu clones, %lu rewrites "
	        "elsewhere, %lu gave up privileges, %lu MiB looked at\n", common->forks,
	        common->kills, common->execs, common->clones, common->rewrites,
	        common->strangers, common->bytes / MIB);
	/* If nothing happened nothing is proved. Of eight forks one execs. */
	check(common->forks > 0 && common->execs >= common->forks / 64);
	check(common->bytes > 0 && (common->kills > 0 || common->forks < 200));
	return atomic_load(&common->failed);
}
