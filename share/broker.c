/* SPDX-License-Identifier: MIT */
/*
 * A client of the broker: its connection. See share/broker.h.
 *
 * share/broker_put.c makes the requests.
 */
#include "share/broker.h"
#include "core/memory/state.h"
#include "core/base/error.h"
#include "core/base/pool.h"
#include "memfd/process.h"
#include "memfd/socket.h"
#include "memfd/wait.h"
#include "share/broker_call.h"

#define TIMEOUT_MS 5000
#define ERRNO_MAX 4095
#define TRIES 3 /* of connecting to a broker that is about to end */

static struct cow__pool pool = { .object_bytes = sizeof(struct cow_broker) };
static struct cow__pool put_pool = { .object_bytes = sizeof(struct cow__put) };
static struct cow_broker *brokers; /* cow__share_lock */

/* ---- What was put --------------------------------------------------------------- */

int
cow__put_note(struct cow_broker *b, const struct cow_broker_item *item,
              struct cow__home *h)
{
	struct cow__put *p = cow__pool_take(&put_pool);

	if (!p)
		return -ENOMEM;
	*p = (struct cow__put){ b->puts, *item, h };
	b->puts = p;
	return 0;
}

static void
put_free(struct cow__put *p)
{
	cow__share_enter();
	if (p->home)
		cow__home_unref(p->home);
	cow__share_leave();
	cow__pool_give(&put_pool, p);
}

static void
puts_free(struct cow__put **list)
{
	while (*list) {
		struct cow__put *p = *list;

		*list = p->next;
		put_free(p);
	}
}

bool
cow__put_forget(struct cow_broker *b, const struct cow_broker_item *item)
{
	for (struct cow__put **at = &b->puts; *at; at = &(*at)->next) {
		struct cow__put *p = *at;

		if (strcmp(p->item.name, item->name) != 0 ||
		    (!item->name[0] && (p->item.token.a != item->token.a ||
		                        p->item.token.b != item->token.b)))
			continue;
		*at = p->next;
		put_free(p);
		return true;
	}
	return false;
}

/* ---- One request ---------------------------------------------------------------- */

/* An answer that comes later would be taken for the answer to the next request. */
static int
hang_up(struct cow_broker *b, int r)
{
	cow__descriptor_close(&b->socket);
	return r == -EPIPE ? -ECONNRESET : r;
}

/* The broker closed the connection. A client that it does not serve got the reason before. */
static int
last_word(struct cow_broker *b, int r)
{
	struct cow_broker_message m;

	if ((r == -EPIPE || r == -ECONNRESET) &&
	    cow__socket_read(b->socket.fd, &m, sizeof(m)) == (long)sizeof(m) &&
	    m.magic == COW_BROKER_MAGIC &&
	    (m.result == -EPERM || m.result == -ENOSPC))
		r = m.result;
	return hang_up(b, r);
}

/* The other end need not be a broker. */
static bool
is_answer(const struct cow_broker_message *m, int operation)
{
	return m->magic == COW_BROKER_MAGIC && m->version == COW_BROKER_VERSION &&
	       m->result >= -ERRNO_MAX && m->result <= (operation == COW_BROKER_LIST);
}

static uint64_t
deadline(const struct cow_broker *b)
{
	return cow__now() + b->timeout_ms * (uint64_t)1000000;
}

/* Descriptors that come are dropped if `fds` is NULL. */
static long
hear(struct cow_broker *b, void *data, size_t bytes, int *fds, unsigned *ret_nfds,
     uint64_t until)
{
	long r;

	do {
		r = cow__dial_wait(b->socket.fd, false, until);
		if (r == 0)
			r = fds ? cow__socket_get(b->socket.fd, data, bytes, fds,
			                          COW__SOCKET_FDS, ret_nfds)
			        : cow__socket_read(b->socket.fd, data, bytes);
	} while (r == -EAGAIN);
	return r;
}

static int
ask_broker(struct cow_broker *b, struct cow_broker_message *m, int fd, int *ret_fd)
{
	struct {
		struct cow_broker_message m;
		char more; /* of a message that is too long */
	} in = { .m = *m };
	uint64_t until = deadline(b);
	int fds[COW__SOCKET_FDS], operation = m->operation;
	unsigned nfds = 0, wanted;
	bool sound;
	long r;

	m->magic = COW_BROKER_MAGIC;
	m->version = COW_BROKER_VERSION;
	m->result = 0;
	m->reserved = 0;
	do
		r = cow__socket_send(b->socket.fd, m, sizeof(*m), &fd, fd >= 0);
	while (r == -EAGAIN &&
	       (r = cow__dial_wait(b->socket.fd, true, until)) == 0);
	if (r == -ETOOMANYREFS || r == -ENOBUFS || r == -ENOMEM)
		return (int)r; /* nothing was sent */
	if (r < 0)
		return last_word(b, (int)r);
	if (ret_fd)
		*ret_fd = -1;
	r = hear(b, &in, sizeof(in), ret_fd ? fds : NULL, &nfds, until);
	if (r == -EMFILE && ret_fd)
		return -EMFILE;
	*m = in.m;
	sound = r == (long)sizeof(*m) && is_answer(m, operation);
	/* A result comes with one descriptor, an error with none. */
	wanted = nfds && sound && m->result >= 0;
	cow__socket_drop(fds + wanted, nfds - wanted);
	if (wanted)
		*ret_fd = fds[0];
	if (sound)
		return m->result;
	return last_word(b, r < 0 ? (int)r : r == 0 ? -EPIPE : -EPROTO);
}

/* ---- The connection ------------------------------------------------------------ */

static int
start_broker(struct cow_broker *b)
{
	bool abstract = b->address[0] == '@';
	char demand[] = "--on-demand", path[] = "--socket", command[] = "broker",
	     name[] = "--abstract";
	char *argv[] = { b->program, command, demand, abstract ? name : path,
		         b->address + abstract, NULL };
	int r = cow__run(b->program, argv);

	/* -ECHILD: how it ended is not known. The next try to connect shows it. */
	return r == -ECHILD ? 0 : r > 0 ? -ECONNREFUSED : r;
}

static int
restore(struct cow_broker *b)
{
	int worst = 0;

	for (struct cow__put *p = b->puts; p && b->socket.fd >= 0; p = p->next) {
		struct cow_broker_message m = {
			.operation = COW_BROKER_PUT,
			.offset = p->home ? p->home->offset : 0,
			.item = p->item,
		};
		int r;

		/* The program closed it. The number may be a file of the program's. */
		if (p->home && !cow__descriptor_ok(&p->home->file)) {
			worst = -EBADF;
			continue;
		}
		r = ask_broker(b, &m, p->home ? p->home->file.fd : -1, NULL);
		/* Is it ours? Then the broker has kept a name that lasts. */
		if (r == -EEXIST &&
		    memcmp(&m.item, &p->item, sizeof(m.item)) == 0)
			r = 0;
		if (r < 0 && (worst == 0 || worst == -EEXIST))
			worst = r;
	}
	return worst;
}

/* Any process can listen at a name, so its user is checked before anything is sent. */
static int
is_trusted(const struct cow_broker *b)
{
	uint32_t uid;
	int32_t pid;
	int r;

	if (b->flags & COW_BROKER_ANY_USER)
		return 0;
	r = cow__socket_peer(b->socket.fd, &uid, &pid);
	if (r < 0)
		return r;
	return uid == 0 || cow__process_is_user(uid) ? 0 : -EPERM;
}

static int
dial(struct cow_broker *b)
{
	struct cow_broker_message m = { .operation = COW_BROKER_HELLO };
	int r = cow__dial(b->address, deadline(b), &b->socket);

	if (r == 0)
		r = is_trusted(b);
	return r < 0 ? r : ask_broker(b, &m, -1, NULL);
}

int
cow__broker_connect(struct cow_broker *b)
{
	int r = 0;

	puts_free(&b->parents);
	if (b->socket.fd >= 0 && cow__descriptor_ok(&b->socket)) {
		/* What could not be put again before is tried once more. */
		if (b->restored < 0)
			b->restored = restore(b);
		return b->socket.fd < 0 ? -ECONNRESET : 0;
	}
	b->socket = COW__NO_DESCRIPTOR;
	for (int i = 0; i < TRIES; i++) {
		r = dial(b);
		if (r != -ENOENT && r != -ECONNREFUSED && r != -ECONNRESET)
			break;
		if (!(b->flags & COW_BROKER_START))
			break;
		r = start_broker(b);
		if (r < 0)
			break;
		r = -ECONNREFUSED;
	}
	if (r == 0)
		b->restored = restore(b);
	else
		cow__descriptor_close(&b->socket);
	return r < 0 ? r : b->socket.fd < 0 ? -ECONNRESET : 1;
}

int
cow__broker_call(struct cow_broker *b, struct cow_broker_message *m, int fd,
                 int *ret_fd)
{
	struct cow_broker_message again = *m;
	int fresh = cow__broker_connect(b), r;

	if (fresh < 0)
		return fresh;
	r = ask_broker(b, m, fd, ret_fd);
	if (r != -ECONNRESET || fresh)
		return r;
	/* It ended meanwhile, and its memory of this request ended with it. */
	r = cow__broker_connect(b);
	if (r < 0)
		return r;
	*m = again;
	return ask_broker(b, m, fd, ret_fd);
}

/* ---- Birth and death -------------------------------------------------------------- */

static size_t
append_text(char *to, size_t at, size_t max, const char *s)
{
	while (*s && at + 1 < max)
		to[at++] = *s++;
	to[at] = '\0';
	return at;
}

static void
usual_address(char *to)
{
	char digits[12] = "";
	uint32_t uid = cow__process_user();
	size_t i = sizeof(digits) - 1, at;

	do
		digits[--i] = (char)('0' + uid % 10);
	while (uid /= 10);
	at = append_text(to, 0, COW__ADDRESS_MAX, "/run/user/");
	at = append_text(to, at, COW__ADDRESS_MAX, digits + i);
	(void)append_text(to, at, COW__ADDRESS_MAX, "/cowshed/broker");
}

static int
set_up(struct cow_broker *b, const struct cow_broker_options *o)
{
	if (o->address) {
		if (strlen(o->address) > COW__ADDRESS_MAX)
			return cow__error_number(-ENAMETOOLONG,
			                         "cow_broker_open: an address "
			                         "has at most # bytes",
			                         COW__ADDRESS_MAX);
		if (!o->address[0] || !o->address[1] ||
		    (o->address[0] != '/' && o->address[0] != '@'))
			return cow__error(-EINVAL, "cow_broker_open: an address "
			                           "begins with '/' or '@'");
		(void)append_text(b->address, 0, sizeof(b->address), o->address);
	} else {
		usual_address(b->address);
	}
	if (o->program && strlen(o->program) >= sizeof(b->program))
		return cow__error(-ENAMETOOLONG,
		                  "cow_broker_open: the program's path is too long");
	(void)append_text(b->program, 0, sizeof(b->program),
	                  o->program ? o->program : "cowshed");
	if ((o->flags & COW_BROKER_START) && b->program[0] != '/' &&
	    cow__process_is_raised())
		return cow__error(-EPERM, "cow_broker_open: a process with raised "
		                          "privileges must give the program's "
		                          "path from '/' on");
	if (o->flags & ~(uint32_t)(COW_BROKER_START | COW_BROKER_ANY_USER))
		return cow__error(-EINVAL, "cow_broker_open: unknown flags");
	b->flags = o->flags;
	b->timeout_ms = o->timeout_ms ? o->timeout_ms : TIMEOUT_MS;
	return 0;
}

int
cow__broker_sentence(int r)
{
	switch (r) {
	case -ENOENT:
	case -ECONNREFUSED:
	case -ECONNRESET:
		return cow__error(r, "there is no broker");
	case -EPERM:
	case -EACCES:
		return cow__error(r, "the broker does not serve this user, or "
		                     "belongs to another user");
	case -ETIMEDOUT:
		return cow__error(r, "the broker does not answer");
	case -EPROTO:
	case -EBADMSG:
		return cow__error(r, "the program that answers is not a broker of "
		                     "this version");
	case -ENOSPC:
		return cow__error(r, "the broker has no room for more");
	case -EEXIST:
		return cow__error(r, "another process has taken a name or token "
		                     "of this process");
	default:
		return cow__error_from(r, "the broker");
	}
}

COW_EXPORT int
cow_broker_open(const struct cow_broker_options *options, struct cow_broker **ret)
{
	const struct cow_broker_options none = { 0 };
	const struct cow_broker_options *o = options ? options : &none;
	struct cow_broker *b;
	int r;

	if (!ret || (options && options->size != sizeof(*options)))
		return cow__error(ret ? -E2BIG : -EINVAL,
		                  ret ? "cow_broker_open: options of another version"
		                      : "cow_broker_open: ret is NULL");
	r = cow__engine_enter(); /* fork handlers */
	if (r < 0)
		return cow__error_from(r, "cow_broker_open");
	cow__engine_unlock();
	b = cow__pool_take(&pool);
	if (!b)
		return cow__error_from(-ENOMEM, "cow_broker_open");
	*b = (struct cow_broker){ .refs = 1, .socket = COW__NO_DESCRIPTOR };
	r = set_up(b, o);
	if (r < 0) {
		cow__pool_give(&pool, b);
		return r;
	}
	cow__share_enter();
	b->next = brokers;
	brokers = b;
	cow__share_leave();
	cow__mutex_lock(&b->lock);
	r = cow__broker_connect(b);
	cow__mutex_unlock(&b->lock);
	if (r < 0) {
		(void)cow_broker_unref(b);
		return cow__broker_sentence(r);
	}
	*ret = b;
	return 0;
}

COW_EXPORT struct cow_broker *
cow_broker_ref(struct cow_broker *b)
{
	if (b)
		__atomic_fetch_add(&b->refs, 1, __ATOMIC_RELAXED);
	return b;
}

COW_EXPORT struct cow_broker *
cow_broker_unref(struct cow_broker *b)
{
	/* Pairs with itself: the last thread sees what the others wrote. */
	if (!b || __atomic_sub_fetch(&b->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return NULL;
	cow__share_enter();
	for (struct cow_broker **p = &brokers; *p; p = &(*p)->next)
		if (*p == b) {
			*p = b->next;
			break;
		}
	cow__share_leave();
	puts_free(&b->puts);
	puts_free(&b->parents);
	cow__descriptor_close(&b->socket);
	cow__pool_give(&pool, b);
	return NULL;
}

COW_EXPORT int
cow_broker_refresh(struct cow_broker *b)
{
	struct cow_broker_message m = { .operation = COW_BROKER_HELLO };
	int r;

	if (!b)
		return cow__error(-EINVAL, "cow_broker_refresh: NULL");
	cow__mutex_lock(&b->lock);
	r = cow__broker_call(b, &m, -1, NULL);
	if (r == 0)
		r = b->restored;
	cow__mutex_unlock(&b->lock);
	return r < 0 ? cow__broker_sentence(r) : 0;
}

/* If the parent's connection stayed open here, the broker would not see the parent's end. */
void
cow__brokers_child(void)
{
	for (struct cow_broker *b = brokers; b; b = b->next) {
		struct cow__put **end = &b->parents;

		b->lock.state = 0;
		cow__descriptor_close(&b->socket);
		while (*end)
			end = &(*end)->next;
		*end = b->puts;
		b->puts = NULL;
	}
}
