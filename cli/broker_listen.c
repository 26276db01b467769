/* SPDX-License-Identifier: MIT */
/*
 * The broker's socket
 *
 * If two brokers start at once, one must win and the other must know. At a path,
 * the lock on a file beside it decides: a socket file outlives its owner, and does
 * not tell whether the owner lives. The broker that has the lock may remove a dead
 * socket. If it can't listen it removes the lock's file, if it made that file. An
 * abstract name is its own lock. A service manager hands over a socket that it
 * keeps (LISTEN_FDS, sd_listen_fds(3)).
 */
#include "cli/broker.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { WAIT_MS = 5000, DEAD_MS = 1000, LOOK_MS = 5 };

int broker_address(const char *path, const char *name, char ret[PATH_MAX])
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	int n;

	if (name != NULL)
		n = snprintf(ret, PATH_MAX, "@%s", name);
	else if (path != NULL)
		n = snprintf(ret, PATH_MAX, "%s", path);
	else if (runtime != NULL && runtime[0] == '/')
		n = snprintf(ret, PATH_MAX, "%s/cowshed/broker", runtime);
	else
		n = snprintf(ret, PATH_MAX, "/run/user/%lu/cowshed/broker",
		             (unsigned long)geteuid());
	if (n > (int)sizeof(((struct sockaddr_un *)0)->sun_path) - 1) {
		cli_error("The socket's path is %d bytes long, and 107 are "
		          "allowed; choose another with --socket or "
		          "--abstract.", n);
		return -ENAMETOOLONG;
	}
	if (ret[0] != '/' && (ret[0] != '@' || ret[1] == 0)) {
		cli_error("The broker can't be at '%s'; write a path that "
		          "begins with '/', or --abstract and a name.", ret);
		return -EINVAL;
	}
	return 0;
}

static socklen_t fill_address(struct sockaddr_un *a, const char *address)
{
	size_t n = strlen(address);

	*a = (struct sockaddr_un){ .sun_family = AF_UNIX };
	memcpy(a->sun_path, address, n);
	if (address[0] == '@')
		a->sun_path[0] = 0;
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n +
	                   (address[0] == '/'));
}

/* The kernel may still have the socket of a broker that was killed. */
static bool is_dead(int fd)
{
	struct ucred peer;
	socklen_t bytes = sizeof(peer);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 &&
	       peer.pid > 0 && kill(peer.pid, 0) < 0 && errno == ESRCH;
}

/* 0: a broker listens. -EOWNERDEAD: it was killed; -ECONNREFUSED: none listens. */
static int probe_broker(const char *address)
{
	struct sockaddr_un a;
	socklen_t bytes = fill_address(&a, address);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK,
	                0);
	int r = 0;

	if (fd < 0)
		return -errno;
	/* EAGAIN: a broker listens, and is busy. */
	if (connect(fd, (struct sockaddr *)&a, bytes) == 0)
		r = is_dead(fd) ? -EOWNERDEAD : 0;
	else if (errno != EAGAIN)
		r = -errno;
	close(fd);
	return r;
}

/* Removes a socket at which no process listens. Leaves other files alone
 * (-ENOTSOCK), and sockets at which another program listens (-EPROTOTYPE). */
static int clear_place(const char *path)
{
	struct stat st;
	int r;

	if (lstat(path, &st) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(st.st_mode))
		return -ENOTSOCK;
	r = probe_broker(path);
	if (r == 0 || r == -EOWNERDEAD)
		return -EEXIST; /* it inherited its socket, or is about to end */
	if (r == -ECONNREFUSED)
		r = unlink(path) < 0 ? -errno : 0;
	return r == -ENOENT ? 0 : r;
}

static const char *reason(int error)
{
	if (error == -ENOTSOCK)
		return "there is a file that is not a socket; remove it, or "
		       "choose another place";
	if (error == -EPROTOTYPE)
		return "another program listens there; choose another place";
	return strerror(-error);
}

/* Makes the folder of the socket. No other user may look into it. */
static int make_folder(const char *address)
{
	char folder[PATH_MAX];
	char *slash;

	strcpy(folder, address);
	slash = strrchr(folder, '/');
	if (slash == folder)
		return 0;
	*slash = 0;
	return mkdir(folder, 0700) < 0 && errno != EEXIST ? -errno : 0;
}

static void lock_path(const char *address, char ret[PATH_MAX])
{
	snprintf(ret, PATH_MAX, "%.*s.lock", 200, address);
}

static int open_lock(const char *path, bool *ret_made)
{
	const int how = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
	int fd = open(path, how | O_CREAT | O_EXCL, 0600);

	*ret_made = fd >= 0;
	if (fd >= 0 || errno != EEXIST)
		return fd < 0 ? -errno : fd;
	fd = open(path, how);
	/* ENOENT: it was removed meanwhile. */
	return fd >= 0 ? fd : errno == ENOENT ? -EAGAIN : -errno;
}

/* 0: we have the lock; -EAGAIN: another process has it. */
static int take_lock(const char *address, int *ret, bool *ret_made)
{
	struct stat ours, there;
	char path[PATH_MAX];
	int fd, r;

	lock_path(address, path);
	fd = open_lock(path, ret_made);
	if (fd < 0)
		return fd;
	r = flock(fd, LOCK_EX | LOCK_NB) < 0 ? -errno : 0;
	/* The process that made it may have removed it before we locked it. */
	if (r == 0 && (fstat(fd, &ours) < 0 || lstat(path, &there) < 0 ||
	               ours.st_dev != there.st_dev ||
	               ours.st_ino != there.st_ino))
		r = -EAGAIN;
	if (r < 0)
		close(fd);
	else
		*ret = fd;
	return r;
}

/* Removes the file before unlocking it: no other process can have locked it. */
static void leave_lock(const char *address, int lock, bool made)
{
	char path[PATH_MAX];

	if (lock < 0)
		return;
	lock_path(address, path);
	if (made)
		(void)unlink(path);
	close(lock);
}

static int try_listen(const char *address, int *ret_fd, int *ret_lock)
{
	struct sockaddr_un a;
	socklen_t bytes = fill_address(&a, address);
	int lock = -1, fd, r = 0;
	bool made = false;

	if (address[0] == '/') {
		r = take_lock(address, &lock, &made);
		if (r < 0)
			return r;
		r = clear_place(address);
		if (r < 0) {
			leave_lock(address, lock, made);
			return r;
		}
	}
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, bytes) < 0)
		r = errno == EADDRINUSE ? -EAGAIN : -errno;
	else if (listen(fd, 1024) < 0)
		r = -errno;
	if (r < 0) {
		if (fd >= 0)
			close(fd);
		leave_lock(address, lock, made);
		return r;
	}
	*ret_fd = fd;
	*ret_lock = lock;
	return 0;
}

int broker_listen(const char *address, int *ret_fd, int *ret_lock)
{
	int r = address[0] == '/' ? make_folder(address) : 0;

	/* A process that has the lock will soon listen, or end. A socket that
	 * answers without a lock may belong to a process that just died: the kernel
	 * closes its descriptors one after another. */
	for (int ms = 0; r == 0; ms += LOOK_MS) {
		r = try_listen(address, ret_fd, ret_lock);
		if (r == -EAGAIN && probe_broker(address) == 0)
			r = -EEXIST;
		else if ((r == -EAGAIN && ms < WAIT_MS) ||
		         (r == -EEXIST && ms < DEAD_MS))
			r = 0;
		else
			break;
		if (r == 0)
			nanosleep(&(struct timespec){ .tv_nsec = LOOK_MS *
			                                         1000000 },
			          NULL);
	}
	if (r < 0 && r != -EEXIST)
		cli_error("The broker can't listen at '%s': %s.", address,
		          reason(r));
	return r;
}

void broker_unlisten(const char *address, int fd, int lock)
{
	/* First the name, then the socket, then the lock: a late client finds no
	 * socket, and the next broker finds a clean place. */
	if (address[0] == '/')
		(void)unlink(address);
	close(fd);
	if (lock >= 0)
		close(lock);
}

int broker_inherited(int *ret_fd)
{
	const char *pid = getenv("LISTEN_PID"), *fds = getenv("LISTEN_FDS");
	int type = 0, listens = 0;
	socklen_t bytes = sizeof(type);

	if (pid == NULL || fds == NULL || atol(pid) != (long)getpid() ||
	    atoi(fds) < 1)
		return 0;
	if (atoi(fds) != 1 ||
	    getsockopt(3, SOL_SOCKET, SO_TYPE, &type, &bytes) < 0 ||
	    type != SOCK_SEQPACKET ||
	    getsockopt(3, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) < 0 ||
	    !listens) {
		cli_error("The service manager handed over something else than "
		          "one listening socket that keeps messages apart; set "
		          "ListenSequentialPacket=.");
		return -EINVAL;
	}
	if (fcntl(3, F_SETFD, FD_CLOEXEC) < 0 ||
	    fcntl(3, F_SETFL, O_NONBLOCK) < 0)
		return -errno;
	unsetenv("LISTEN_PID");
	unsetenv("LISTEN_FDS");
	*ret_fd = 3;
	return 1;
}
