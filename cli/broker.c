/* SPDX-License-Identifier: MIT */
/*
 * cowshed broker: holds storages for other processes
 *
 * <cowshed-broker.h> says what it is for. This file has its options, its limits,
 * and its start. With --on-demand a client starts it and waits for the first
 * process, which ends when a broker listens, this one or another. Then the client
 * can connect.
 */
#include "cli/broker.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char page[] =
	"Usage: cowshed broker [OPTION ...]\n"
	"Holds storages for other processes, under names and tokens.\n"
	"\n"
	"  --socket PATH    where to listen\n"
	"                   (default: $XDG_RUNTIME_DIR/cowshed/broker)\n"
	"  --abstract NAME  use an abstract name instead\n"
	"  --others         serve other users too, by the permissions of each\n"
	"                   storage; all users who can reach the path can connect;\n"
	"                   subordinate users (/etc/subuid) count as their owner\n"
	"  --on-demand      go into the background when listening, and end after\n"
	"                   a while without clients and storages\n"
	"  --idle SECONDS   end after this time without clients and storages\n"
	"                   (default: never; with --on-demand: 10)\n"
	"  --max COUNT      hold at most this many storages\n"
	"  -v, --verbose    say where and how it listens\n"
	"  -h, --help       this help\n"
	"\n"
	"A broker that a service manager starts takes the socket that the manager\n"
	"gives it. A broker may be killed: no process loses memory, and its\n"
	"clients register their storages again with the next broker.\n";

static const char *where;
static bool verbose;

static void started(void)
{
	if (!verbose)
		return;
	printf("listening at %s\n", where);
	fflush(stdout);
}

static int parse_number(const char *text, long most, long *ret)
{
	char *end;

	errno = 0;
	*ret = strtol(text, &end, 10);
	return errno != 0 || end == text || *end != 0 || *ret < 0 || *ret > most
	               ? -EINVAL
	               : 0;
}

/* Raises the limit of descriptors as far as allowed, and returns it. */
static uint32_t descriptors(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return 512;
	limit.rlim_cur = limit.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &limit);
	(void)getrlimit(RLIMIT_NOFILE, &limit);
	return limit.rlim_cur > 1 << 20 ? 1 << 20 : (uint32_t)limit.rlim_cur;
}

/* With --others, one user gets half of it, and an eighth is left for root and the user
 * of the broker. */
static struct broker_limit limit(uint32_t all, bool others)
{
	return (struct broker_limit){
		.all = all,
		.of_others = all - all / 8,
		.of_user = others ? all / 2 : all,
	};
}

static int set_limits(struct broker_limits *l, long max, bool others)
{
	uint32_t fds = descriptors(), clients, objects;

	if (fds < 64)
		return cli_error("A broker needs 64 descriptors and may have "
		                 "%u; raise ulimit -n.", fds);
	/* Two descriptors may be in flight to each client. The kernel limits
	 * these by the same number (ETOOMANYREFS): clients may use half of it. */
	clients = fds / 4 < 4096 ? fds / 4 : 4096;
	objects = fds - clients - 32;
	if (max > 0 && (uint32_t)max < objects)
		objects = (uint32_t)max;
	l->of[BROKER_CLIENT] = limit(clients, others);
	l->of[BROKER_OBJECT] = limit(objects, others);
	l->of[BROKER_OBJECT].of_user += others;
	l->objects_of_client = l->of[BROKER_OBJECT].of_user / 2 + 1;
	/* Some bytes each. Several connections may hold the same objects. */
	l->of[BROKER_HOLD] = limit(4 * objects, others);
	return 0;
}

/* Opens what is closed of 0 to 2, so that no file of ours gets these numbers:
 * messages go there, and background() puts /dev/null there. */
static int open_stdio(void)
{
	for (int fd = 0; fd < 3; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd)
			return CLI_FAILED; /* no message: there is no stderr */
	return 0;
}

static int background(void)
{
	pid_t pid = fork();
	int null;

	if (pid < 0)
		return -errno;
	if (pid > 0)
		_exit(0);
	(void)setsid();
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null < 0 || chdir("/") < 0)
		return -errno;
	for (int fd = 0; fd < 3; fd++)
		if (dup2(null, fd) < 0)
			return -errno;
	close(null);
	return 0;
}

static int serve_socket(struct broker_service *s, const char *address, bool demand)
{
	int lock = -1, r = 0, given;

	/* Only the owner may connect to the socket, unless --others is given. */
	(void)umask(s->others ? 0 : 077);
	given = demand ? 0 : broker_inherited(&s->listener);
	if (given < 0)
		return CLI_FAILED;
	if (given == 0)
		r = broker_listen(address, &s->listener, &lock);
	if (r == -EEXIST)
		return demand ? 0
		              : cli_error("There is a broker at '%s' already; "
		                          "use it, or choose another place.",
		                          address);
	if (r < 0)
		return CLI_FAILED;
	where = given ? "the socket that was given" : address;
	if (demand)
		r = background();
	/* Again, so that SO_PEERCRED tells clients the number of this process,
	 * and not that of the first process, which has ended. */
	if (demand && r == 0 && listen(s->listener, 1024) < 0)
		r = -errno;
	if (r == 0)
		r = broker_serve(s, started);
	if (!given)
		broker_unlisten(address, s->listener, lock);
	return r < 0 ? cli_error("The broker failed: %s.", strerror(-r)) : 0;
}

/* What the options say. */
struct wishes {
	const char *path, *name;
	long idle, max; /* -1 and 0: not given */
	bool demand, others;
};

static int take_option(int found, char **argv, struct wishes *w)
{
	switch (found) {
	case 's':
		w->path = optarg;
		break;
	case 'a':
		w->name = optarg;
		break;
	case 'o':
		w->others = true;
		break;
	case 'd':
		w->demand = true;
		break;
	case 'i':
		if (parse_number(optarg, 1000000, &w->idle) < 0)
			return cli_error("'%s' is not a number of seconds; "
			                 "write 0 to 1000000.", optarg);
		break;
	case 'm':
		if (parse_number(optarg, INT_MAX, &w->max) < 0 || w->max == 0)
			return cli_error("'%s' is not a number of storages; "
			                 "write 1 to %d.", optarg, INT_MAX);
		break;
	case 'v':
		verbose = true;
		break;
	case 'h':
		return cli_help(&cli_broker);
	default:
		return cli_bad_option(found, argv);
	}
	return CLI_GO_ON;
}

static int take_options(int argc, char **argv, struct wishes *w)
{
	static const struct option options[] = {
		{"socket", required_argument, NULL, 's'},
		{"abstract", required_argument, NULL, 'a'},
		{"others", no_argument, NULL, 'o'},
		{"on-demand", no_argument, NULL, 'd'},
		{"idle", required_argument, NULL, 'i'},
		{"max", required_argument, NULL, 'm'},
		{"verbose", no_argument, NULL, 'v'},
		{"help", no_argument, NULL, 'h'},
		{0},
	};
	int found, status = CLI_GO_ON;

	while (status == CLI_GO_ON &&
	       (found = getopt_long(argc, argv, ":s:a:odi:m:vh", options,
	                            NULL)) != -1)
		status = take_option(found, argv, w);
	if (status == CLI_GO_ON && argc != optind)
		return cli_error("'cowshed broker' takes no arguments: "
		                 "leave out '%s'.", argv[optind]);
	return status;
}

static int broker_main(int argc, char **argv)
{
	struct broker_service s = { .listener = -1, .idle_ms = -1 };
	struct wishes w = { .idle = -1 };
	char address[PATH_MAX];
	int status;

	if (open_stdio() != 0)
		return CLI_FAILED;
	status = take_options(argc, argv, &w);
	if (status != CLI_GO_ON)
		return status;
	s.others = w.others;
	s.subordinates = w.others ? "/etc/subuid" : NULL;
	if (broker_address(w.path, w.name, address) < 0 ||
	    set_limits(&s.limits, w.max, w.others) != 0)
		return CLI_FAILED;
	if (w.demand && w.idle < 0)
		w.idle = 10;
	if (w.idle >= 0)
		s.idle_ms = (int)w.idle * 1000;
	/* Descriptors of the process that started us must not stay open. */
	if (w.demand)
		(void)syscall(SYS_close_range, 3, ~0U, 0);
	return serve_socket(&s, address, w.demand);
}

const struct cli_command cli_broker = {
	"broker", "hold storages for other processes", page, broker_main,
};
