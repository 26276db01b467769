/* SPDX-License-Identifier: MIT */
/*
 * cowshed ls, publish, get, rm: the storages of a broker, by hand
 *
 * Each command is a few calls of <cowshed-broker.h>. publish reads a file into a
 * storage; get writes a file from one. If get can't write a regular file whole,
 * it leaves no part of it.
 */
#include "cli/broker.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PLACE                                                                  \
	"  --socket PATH    where the broker listens\n"                         \
	"                   (default: $XDG_RUNTIME_DIR/cowshed/broker)\n"        \
	"  --abstract NAME  use an abstract name instead\n"                     \
	"  --any-user       accept a broker of another user than you or root\n"

static const char ls_page[] =
	"Usage: cowshed ls [OPTION ...]\n"
	"Lists the storages of the broker that you may get.\n"
	"\n" PLACE
	"  -h, --help       this help\n"
	"\n"
	"Columns: permissions, user, bytes, mode, name. A storage with a token\n"
	"and no name shows as '-'.\n";

static const char publish_page[] =
	"Usage: cowshed publish [OPTION ...] FILE NAME\n"
	"Gives the broker the bytes of a file under a name. '-' is standard\n"
	"input.\n"
	"\n" PLACE
	"  --mode OCTAL     permissions (default: 0600); 0644: others may get it\n"
	"  -h, --help       this help\n"
	"\n"
	"Starts a broker if there is none.\n";

static const char get_page[] =
	"Usage: cowshed get [OPTION ...] NAME [FILE]\n"
	"Writes the storage with this name to a file, or to standard output.\n"
	"Follows a symbolic link, and writes into a device or a pipe.\n"
	"\n" PLACE
	"  -h, --help       this help\n";

static const char rm_page[] =
	"Usage: cowshed rm [OPTION ...] NAME ...\n"
	"Makes the broker forget names. Processes that have the storages keep\n"
	"them.\n"
	"\n" PLACE
	"  -h, --help       this help\n";

struct use {
	char address[PATH_MAX];
	uint32_t permissions, flags;
};

/* Options of all four. CLI_GO_ON, or the exit status. */
static int parse_options(int argc, char **argv, const struct cli_command *command,
                         struct use *u)
{
	static const struct option options[] = {
		{"socket", required_argument, NULL, 's'},
		{"abstract", required_argument, NULL, 'a'},
		{"any-user", no_argument, NULL, 'u'},
		{"mode", required_argument, NULL, 'm'},
		{"help", no_argument, NULL, 'h'},
		{0},
	};
	const char *path = NULL, *name = NULL;
	char *end;
	int found;

	u->permissions = 0600;
	u->flags = 0;
	while ((found = getopt_long(argc, argv, ":s:a:um:h", options, NULL)) !=
	       -1)
		switch (found) {
		case 's':
			path = optarg;
			break;
		case 'a':
			name = optarg;
			break;
		case 'u':
			u->flags = COW_BROKER_ANY_USER;
			break;
		case 'm':
			u->permissions = (uint32_t)strtoul(optarg, &end, 8);
			if (end == optarg || *end != 0 ||
			    (u->permissions & ~0666u) != 0)
				return cli_error("'%s' are not permissions; write "
				                 "0600, 0644 or the like.", optarg);
			break;
		case 'h':
			return cli_help(command);
		default:
			return cli_bad_option(found, argv);
		}
	return broker_address(path, name, u->address) < 0 ? CLI_FAILED
	                                                  : CLI_GO_ON;
}

static int reach(const struct use *u, bool start, struct cow_broker **ret)
{
	struct cow_broker_options o = {
		.size = sizeof(o),
		.address = u->address,
		.flags = u->flags | (start ? COW_BROKER_START : 0),
	};
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	/* This program is the broker to start, not one from PATH. */
	if (n > 0) {
		self[n] = 0;
		o.program = self;
	}
	if (cow_broker_open(&o, ret) < 0)
		return cli_error("The broker at '%s' can't be reached: %s.",
		                 u->address, cow_last_error());
	return 0;
}

static int name_of(const char *text, struct cow_broker_item *ret)
{
	size_t n = strlen(text);

	if (n == 0 || n >= COW_BROKER_NAME || strchr(text, '/') != NULL)
		return cli_error("'%s' is not a name; write 1 to %d bytes "
		                 "without '/'.", text, COW_BROKER_NAME - 1);
	memcpy(ret->name, text, n + 1);
	return 0;
}

/* ---- ls ------------------------------------------------------------------------- */

static int ls_main(int argc, char **argv)
{
	static const char *const modes[] = {"alias", "clone", "sealed"};
	struct cow_broker_item item;
	struct cow_broker *b;
	uint64_t cursor = 0;
	struct use u;
	int r = parse_options(argc, argv, &cli_ls, &u);

	if (r != CLI_GO_ON)
		return r;
	if (argc != optind)
		return cli_error("'cowshed ls' takes no arguments: "
		                 "leave out '%s'.", argv[optind]);
	r = reach(&u, false, &b);
	if (r != 0)
		return r;
	while ((r = cow_broker_list(b, &cursor, &item)) > 0) {
		cli_tame(item.name);
		printf("%04o %6u %14llu %-6s %s\n", item.permissions, item.uid,
		       (unsigned long long)item.bytes,
		       item.mode < 3 ? modes[item.mode] : "?",
		       item.name[0] != 0 ? item.name : "-");
	}
	if (r < 0)
		cli_error("The list is not complete: %s.", cow_last_error());
	cow_broker_unref(b);
	return r < 0 ? CLI_FAILED : 0;
}

const struct cli_command cli_ls = {
	"ls", "list the storages of the broker", ls_page, ls_main,
};

/* ---- publish --------------------------------------------------------------------- */

/* Reads a whole file, which may grow meanwhile. */
static int read_all(int fd, struct cow_storage **ret)
{
	struct cow_storage *s;
	struct stat st;
	size_t have = 0, room;
	void *data;
	int r;

	if (fstat(fd, &st) < 0)
		return -errno;
	room = st.st_size > 0 ? (size_t)st.st_size : 0;
	r = cow_storage_new(room, NULL, &s);
	while (r == 0) {
		char one;
		ssize_t n;

		if (have == room) {
			n = read(fd, &one, 1);
			if (n <= 0) {
				r = n < 0 ? -errno : 0;
				break;
			}
			room = have < 65536 ? 131072 : have * 2;
			r = cow_storage_resize(s, room);
			if (r == 0)
				r = cow_storage_data_mut(s, &data);
			if (r == 0)
				((char *)data)[have++] = one;
			continue;
		}
		r = cow_storage_data_mut(s, &data);
		if (r < 0)
			break;
		n = read(fd, (char *)data + have, room - have);
		if (n < 0) {
			r = errno == EINTR ? 0 : -errno;
			continue;
		}
		if (n == 0)
			break;
		have += (size_t)n;
	}
	if (r == 0 && have < room)
		r = cow_storage_resize(s, have);
	if (r < 0)
		cow_storage_unref(s);
	else
		*ret = s;
	return r;
}

static int publish_main(int argc, char **argv)
{
	struct cow_broker_item item = { .mode = COW_SHARE_SEALED };
	struct cow_storage *s = NULL;
	struct cow_broker *b;
	struct use u;
	int fd = 0, r = parse_options(argc, argv, &cli_publish, &u);

	if (r != CLI_GO_ON)
		return r;
	if (argc - optind != 2)
		return cli_error("'cowshed publish' takes a file and a name; "
		                 "see 'cowshed help publish'.");
	r = name_of(argv[optind + 1], &item);
	if (r != 0)
		return r;
	item.permissions = u.permissions;
	if (strcmp(argv[optind], "-") != 0)
		fd = open(argv[optind], O_RDONLY | O_CLOEXEC);
	r = fd < 0 ? -errno : read_all(fd, &s);
	if (r < 0)
		return cli_error("'%s' can't be read: %s.", argv[optind],
		                 strerror(-r));
	r = reach(&u, true, &b);
	if (r != 0)
		return r;
	if (cow_broker_put(b, s, &item) < 0)
		r = cli_error("'%s' can't be published: %s.", item.name,
		              cow_last_error());
	cow_storage_unref(s);
	cow_broker_unref(b);
	return r;
}

const struct cli_command cli_publish = {
	"publish", "give the broker a file under a name", publish_page,
	publish_main,
};

/* ---- get ------------------------------------------------------------------------- */

static int write_all(int fd, const char *data, size_t bytes)
{
	while (bytes > 0) {
		ssize_t n = write(fd, data, bytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		data += n;
		bytes -= (size_t)n;
	}
	return 0;
}

/* Opens a part file under a new name: a killed `get` leaves its part behind. It
 * has the permissions of the file that it will replace, or of any new file. */
static int open_part(const char *path, char part[PATH_MAX])
{
	mode_t mode, mask = umask(0);
	struct stat st;
	int fd;

	(void)umask(mask);
	mode = stat(path, &st) < 0 ? 0666 & ~mask : st.st_mode & 0777;
	if (snprintf(part, PATH_MAX, "%s.XXXXXX.part", path) >= PATH_MAX)
		return -ENAMETOOLONG;
	fd = mkostemps(part, 5, O_CLOEXEC);
	if (fd < 0)
		return -errno;
	(void)fchmod(fd, mode);
	return fd;
}

/* The part replaces the file when it is complete: no reader finds half of it. */
static int replace_file(const char *path, const void *data, size_t bytes)
{
	char part[PATH_MAX];
	int fd = open_part(path, part), r;

	if (fd < 0)
		return fd;
	r = write_all(fd, data, bytes);
	if (close(fd) < 0 && r == 0)
		r = -errno;
	if (r == 0 && rename(part, path) < 0)
		r = -errno;
	if (r < 0)
		(void)unlink(part);
	return r;
}

/* Writes into a device or a pipe, which must be there. */
static int write_into(const char *path, const void *data, size_t bytes)
{
	int fd = open(path, O_WRONLY | O_NOCTTY | O_CLOEXEC), r;

	if (fd < 0)
		return -errno;
	r = write_all(fd, data, bytes);
	if (close(fd) < 0 && r == 0)
		r = -errno;
	return r;
}

/* As cp does: follows links, and writes into devices and pipes. */
static int write_file(const char *path, const void *data, size_t bytes)
{
	char target[PATH_MAX];
	struct stat st;

	if (path == NULL)
		return write_all(1, data, bytes);
	if (lstat(path, &st) < 0)
		return errno == ENOENT ? replace_file(path, data, bytes) : -errno;
	/* A link to nowhere is an error. */
	if (stat(path, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return write_into(path, data, bytes);
	return realpath(path, target) == NULL
	               ? -errno
	               : replace_file(target, data, bytes);
}

static int get_main(int argc, char **argv)
{
	struct cow_broker_item item = { .bytes = 0 };
	const char *path;
	struct cow_storage *s;
	struct cow_broker *b;
	struct use u;
	int r = parse_options(argc, argv, &cli_get, &u);

	if (r != CLI_GO_ON)
		return r;
	if (argc - optind != 1 && argc - optind != 2)
		return cli_error("'cowshed get' takes a name, or a name and a "
		                 "file; see 'cowshed help get'.");
	r = name_of(argv[optind], &item);
	path = argv[optind + 1]; /* NULL if there is no second argument */
	if (r == 0)
		r = reach(&u, false, &b);
	if (r != 0)
		return r;
	if (cow_broker_get(b, &item, &s, NULL) < 0) {
		cow_broker_unref(b);
		return cli_error("'%s' can't be read from the broker: %s.", item.name,
		                 cow_last_error());
	}
	r = write_file(path, cow_storage_data(s), cow_storage_bytes(s));
	if (r < 0)
		r = cli_error("'%s' can't be written: %s.",
		              path != NULL ? path : "standard output",
		              strerror(-r));
	cow_storage_unref(s);
	cow_broker_unref(b);
	return r;
}

const struct cli_command cli_get = {
	"get", "write a storage of the broker to a file", get_page, get_main,
};

/* ---- rm -------------------------------------------------------------------------- */

static int rm_main(int argc, char **argv)
{
	struct cow_broker_item item;
	struct cow_broker *b;
	struct use u;
	int r = parse_options(argc, argv, &cli_rm, &u);

	if (r != CLI_GO_ON)
		return r;
	if (argc == optind)
		return cli_error("'cowshed rm' takes at least one name; "
		                 "see 'cowshed help rm'.");
	r = reach(&u, false, &b);
	if (r != 0)
		return r;
	for (int i = optind; i < argc; i++) {
		item = (struct cow_broker_item){ .bytes = 0 };
		if (name_of(argv[i], &item) != 0)
			r = CLI_FAILED;
		else if (cow_broker_drop(b, &item) < 0)
			r = cli_error("'%s' can't be removed: %s.", item.name,
			              cow_last_error());
	}
	cow_broker_unref(b);
	return r;
}

const struct cli_command cli_rm = {
	"rm", "make the broker forget names", rm_page, rm_main,
};
