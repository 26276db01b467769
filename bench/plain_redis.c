/* SPDX-License-Identifier: MIT */
/*
 * Clients of a redis-server that saves again and again
 *
 *      plain_redis -s SOCKET [-k KEYS] [-b BYTES] [-n SAVES] [-g SECONDS]
 *
 * The server holds the KEYS values of BYTES that `debug populate` made. Two threads talk
 * to it all the time:
 *
 *   the load     four connections with 16 requests each in flight, as many requests as
 *                the server takes. Two of 16 requests overwrite a random value, the
 *                others read one. Each connection has keys of its own, so the thread
 *                knows which value each reply has to bring.
 *   the watch    one connection with one request every millisecond, that reads or writes
 *                by turns. It notes how long each took. If a reply comes late, the time
 *                of the next request counts from the moment when it was due.
 *
 * Meanwhile the main thread saves. A save begins SECONDS after the last one ended. After
 * the last save and its SECONDS, every byte of every value is compared with what was
 * last written. One line of the SECONDS before the first save, one a save, one of all:
 *
 *      before_us=..
 *      fork_us=.. save_ms=.. saving_us=.. after_us=..
 *      requests=.. between_us=.. between_worst_us=.. during_us=.. during_worst_us=..
 *
 * fork_us is what the server says of its fork. before_us, saving_us and after_us are the
 * time of one request of the load: before the first save, while the save ran, and in the
 * SECONDS after it. between_us and during_us are the 99.9th percentiles of the watch after
 * the saves and beside them.
 */
#include "bench/resp.h"

#include <pthread.h>
#include <stdatomic.h>

enum { CONNECTIONS = 4, DEPTH = 16, WRITES = 2, BATCH = 64, HEAD = 22, SAMPLES = 1 << 20 };

enum phase { BEFORE, SAVING, BETWEEN, PHASES };

static const char *socket_path;
static size_t keys = 1800000, bytes = 1000;
static uint32_t *turns; /* of each key: the number of its last write, 0: none */
static atomic_bool over;
static atomic_int phase; /* of enum phase */
static atomic_ulong requests;

/* ---- Values -------------------------------------------------------------- */

/* The value that write number `turn` gives to a key; turn 0 is debug populate's. */
static void value_make(char *value, uint32_t key, uint32_t turn)
{
	int n;

	if (turn)
		n = snprintf(value, bytes, "%010u:%010u:", key, turn);
	else
		n = snprintf(value, bytes, "value:%u", key);
	memset(value + n, turn ? 'a' + turn % 26 : 0, bytes - n);
}

static void value_check(const char *got, size_t length, uint32_t key,
                        uint32_t turn, size_t compared)
{
	static _Thread_local char wanted[64 << 10];

	value_make(wanted, key, turn);
	if (length != bytes || memcmp(got, wanted, compared))
		die("key:%u has a wrong value: %.*s, not %.*s", key, HEAD, got,
		    HEAD, wanted);
}

static void put_get(struct resp *r, uint32_t key)
{
	char name[24];

	resp_command(r, 2);
	resp_word(r, "GET", 3);
	resp_word(r, name, sprintf(name, "key:%u", key));
}

static void put_set(struct resp *r, const char *name, const char *value)
{
	resp_command(r, 3);
	resp_word(r, "SET", 3);
	resp_word(r, name, strlen(name));
	resp_word(r, value, bytes);
}

/* ---- The load ------------------------------------------------------------ */

struct client {
	struct resp *r;
	uint32_t key[DEPTH], turn[DEPTH];
	bool set[DEPTH];
};

static uint32_t next_random(void)
{
	static uint64_t state = RANDOM_START;

	return (uint32_t)(random_next(&state) >> 16);
}

static void client_send(struct client *c, uint32_t number)
{
	static char value[64 << 10];
	char name[24];

	for (uint32_t i = 0; i < DEPTH; i++) {
		uint32_t key = next_random() % (keys / CONNECTIONS) *
		               CONNECTIONS + number;

		c->key[i] = key;
		c->set[i] = i < WRITES;
		if (c->set[i]) {
			value_make(value, key, ++turns[key]);
			sprintf(name, "key:%u", key);
			put_set(c->r, name, value);
		} else {
			put_get(c->r, key);
		}
		c->turn[i] = turns[key];
	}
	resp_send(c->r);
}

static void client_take(struct client *c)
{
	for (int i = 0; i < DEPTH; i++) {
		size_t n;
		const char *reply = resp_take(c->r, &n);

		if (!c->set[i])
			value_check(reply, n, c->key[i], c->turn[i], HEAD);
		else if (n != 2)
			die("SET key:%u: %.*s", c->key[i], (int)n, reply);
	}
	atomic_fetch_add(&requests, DEPTH);
}

static void *load(void *unused)
{
	struct client c[CONNECTIONS];

	for (int i = 0; i < CONNECTIONS; i++) {
		c[i].r = resp_open(socket_path);
		client_send(&c[i], i);
	}
	while (!atomic_load(&over))
		for (int i = 0; i < CONNECTIONS; i++) {
			client_take(&c[i]);
			client_send(&c[i], i);
		}
	for (int i = 0; i < CONNECTIONS; i++) {
		client_take(&c[i]);
		resp_close(c[i].r);
	}
	return unused;
}

/* ---- The watch ----------------------------------------------------------- */

static struct samples {
	double us[SAMPLES];
	int n;
} samples[PHASES];

static void wait_until(double ns)
{
	struct timespec t = { (time_t)(ns / 1e9), 0 };

	t.tv_nsec = (long)(ns - t.tv_sec * 1e9);
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
		;
}

static void *watch(void *unused)
{
	static char value[64 << 10];
	struct resp *r = resp_open(socket_path);
	double due = now_ns(), start;
	size_t n;

	for (uint32_t i = 1; !atomic_load(&over); i++) {
		struct samples *s;
		int begun;

		due += 1e6;
		start = due;
		if (now_ns() < due) {
			wait_until(due);
			start = now_ns();
		}
		begun = atomic_load(&phase);
		if (i % 2) {
			value_make(value, keys, i);
			put_set(r, "watched", value);
			resp_send(r);
			resp_take(r, &n);
		} else {
			const char *got = resp_ask(r, "GET", "watched", &n);

			value_check(got, n, keys, i - 1, HEAD);
		}
		/* What a save touched belongs to it. */
		s = &samples[atomic_load(&phase) == SAVING ? SAVING : begun];
		if (s->n == SAMPLES)
			die("too long a run: no room for samples");
		s->us[s->n++] = (now_ns() - start) / 1e3;
	}
	resp_close(r);
	return unused;
}

static double samples_at(struct samples *s, double q)
{
	return quantile(s->us, (size_t)s->n, q);
}

/* ---- The saves ----------------------------------------------------------- */

/* A field of INFO; the text after "FIELD:" up to the end of its line. */
static const char *info(struct resp *r, const char *section, const char *field)
{
	static char text[16 << 10], name[80];
	const char *reply, *found;
	size_t n;

	reply = resp_ask(r, "INFO", section, &n);
	if (n >= sizeof(text))
		die("INFO %s is too long", section);
	memcpy(text, reply, n);
	text[n] = 0;
	snprintf(name, sizeof(name), "\n%s:", field);
	found = strstr(text, name);
	if (!found)
		die("INFO %s has no %s", section, field);
	return found + strlen(name);
}

static void save(struct resp *r, double seconds)
{
	double t0 = now_ns(), t1, t2, fork_us;
	unsigned long done = atomic_load(&requests), saved;
	size_t n;

	atomic_store(&phase, SAVING);
	resp_ask(r, "BGSAVE", NULL, &n);
	fork_us = atof(info(r, "stats", "latest_fork_usec"));
	while (*info(r, "persistence", "rdb_bgsave_in_progress") != '0')
		sleep_ms(20);
	if (strncmp(info(r, "persistence", "rdb_last_bgsave_status"), "ok", 2))
		die("a save failed");
	atomic_store(&phase, BETWEEN);
	t1 = now_ns();
	saved = atomic_load(&requests);
	wait_until(t1 + seconds * 1e9);
	t2 = now_ns();
	printf("fork_us=%.0f save_ms=%.0f saving_us=%.4f after_us=%.4f\n",
	       fork_us, (t1 - t0) / 1e6, (t1 - t0) / 1e3 / (double)(saved - done),
	       (t2 - t1) / 1e3 / (double)(atomic_load(&requests) - saved));
	fflush(stdout);
}

static void check_all(struct resp *r)
{
	for (uint32_t key = 0; key < keys; key += BATCH) {
		uint32_t end = key + BATCH < keys ? key + BATCH : keys;

		for (uint32_t k = key; k < end; k++)
			put_get(r, k);
		resp_send(r);
		for (uint32_t k = key; k < end; k++) {
			size_t n;
			const char *got = resp_take(r, &n);

			value_check(got, n, k, turns[k], bytes);
		}
	}
}

int main(int argc, char **argv)
{
	double seconds = 5, t0;
	int saves = 10;
	pthread_t threads[2];
	struct resp *r;

	OPTIONS({ 's', .text = &socket_path }, { 'k', .size = &keys }, { 'b', .size = &bytes },
	        { 'n', .count = &saves }, { 'g', .number = &seconds });
	if (!socket_path || keys < CONNECTIONS || bytes < 32 || bytes > 4000)
		die("usage: see the head of bench/plain_redis.c");
	turns = calloc(keys, sizeof(*turns));
	r = resp_open(socket_path);
	if (!turns || pthread_create(&threads[0], NULL, load, NULL) ||
	    pthread_create(&threads[1], NULL, watch, NULL))
		die("no threads or no memory");
	t0 = now_ns();
	wait_until(t0 + seconds * 1e9);
	printf("before_us=%.4f\n",
	       (now_ns() - t0) / 1e3 / (double)atomic_load(&requests));
	while (saves-- > 0)
		save(r, seconds);
	atomic_store(&over, true);
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	check_all(r);
	resp_close(r);
	printf("requests=%lu between_us=%.1f between_worst_us=%.1f during_us=%.1f "
	       "during_worst_us=%.1f\n", atomic_load(&requests),
	       samples_at(&samples[BETWEEN], 0.999), samples_at(&samples[BETWEEN], 1),
	       samples_at(&samples[SAVING], 0.999), samples_at(&samples[SAVING], 1));
	return 0;
}
