#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Ways into a process: early and late requests, bound at once, beside auditors,
# beside libraries that want the thread-local storage that is left.
. "$(dirname "$0")/lib.sh"

program before_main
program tuned
for name in before_main early_late; do
	must_succeed=1 compare "LD_BIND_NOW: $name" env LD_BIND_NOW=1 \
		"$programs/$name"
done

cc=$(command -v gcc || command -v cc || command -v clang)
if [ -z "$cc" ]; then
	skip 'libraries: no compiler here'
	finish
fi

# library NAME: from its source on stdin
library() { "$cc" -shared -fPIC -x c -o "$work/$1.so" -; }

library audit <<'END'
unsigned la_version(unsigned v) { return v; }
END
must_succeed=1 compare 'LD_AUDIT: early_late' env LD_AUDIT="$work/audit.so" \
	"$programs/early_late"

# A library of a library registers fork handlers that allocate. It does so before any
# constructor that the shim's own could wait for.
library handlers <<'END'
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
static void *kept;
static void use(void)
{
	char *p = malloc(2 << 20);
	memset(p, 1, 2 << 20);
	p = realloc(p, 5 << 20);
	free(kept);
	kept = p;
}
__attribute__((constructor)) static void begin(void) { pthread_atfork(use, use, use); }
int deep(void) { return kept != NULL; }
END
"$cc" -shared -fPIC -x c -o "$work/middle.so" - -x none "$work/handlers.so" <<'END'
int deep(void);
int middle(void) { return deep(); }
END
cat >"$work/forks.c" <<'END'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
int middle(void);
int main(void)
{
	char *p = malloc(4 << 20);
	int status, bad = 0;

	memset(p, 3, 4 << 20);
	for (int i = 0; i < 4; i++) {
		pid_t child = fork();
		if (child == 0) {
			char *q = malloc(1 << 20);
			memset(q, 4, 1 << 20);
			_exit(p[3 << 20] != 3 || q[5] != 4 || !middle());
		}
		bad |= waitpid(child, &status, 0) != child || status != 0;
	}
	printf("bad: %d, handlers ran: %d\n", bad, middle());
	return bad;
}
END
if "$cc" -fno-builtin -Wl,-rpath,"$work" -Wl,-rpath-link,"$work" -o "$work/forks" \
	"$work/forks.c" "$work/middle.so"; then
	must_succeed=1 compare "a library's library has fork handlers" "$work/forks"
else
	fail "a library's library has fork handlers"
fi

# Each wants static thread-local storage, of which there are about 2 KiB.
for name in a b c d; do
	library $name <<'END'
static __thread char room[700] __attribute__((tls_model("initial-exec")));
char *use(void) { room[699]++; return room; }
END
done
cat >"$work/opens.c" <<'END'
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void live(void)
{
	char *p = malloc(3 << 20);
	int status;
	pid_t child;

	memset(p, 1, 3 << 20);
	child = fork();
	if (child == 0)
		_exit(p[2 << 20] != 1);
	if (waitpid(child, &status, 0) != child || status != 0)
		exit(1);
	p[5] = 2;
	p = realloc(p, 5 << 20);
	if (p[5] != 2 || p[2 << 20] != 1)
		exit(1);
	free(p);
}

int main(int argc, char **argv)
{
	live();
	for (int i = 1; i < argc; i++) {
		void *handle = dlopen(argv[i], RTLD_LAZY);
		char *(*use)(void) = handle ? dlsym(handle, "use") : NULL;

		printf("%d: %s\n", i, handle ? "opened" : "no room");
		if (use)
			use();
		live();
	}
	return 0;
}
END
if "$cc" -fno-builtin -o "$work/opens" "$work/opens.c" -ldl; then
	must_succeed=1 compare 'static TLS runs out' "$work/opens" \
		"$work"/[abcd].so
	# The shim is no plug-in, but opening it must do no harm.
	for name in '' "$work/a.so $work/b.so $work/c.so"; do
		if plainly "$work/opens" $name "$shim" >"$work/out" 2>&1; then
			pass "dlopen of the shim${name:+, no room left}"
		else
			fail "dlopen of the shim${name:+, no room left}" \
				"$work/out"
		fi
	done
else
	fail 'a program could not be built'
fi
# Behind the shim, another library may have an ioctl() of its own.
printf 'int ioctl(int fd, unsigned long request, ...) { return fd == 12345 && request ? 77 : -1; }' |
	${CC:-gcc} -fPIC -shared -o "$work/ioctl.so" -x c - >"$work/out" 2>&1
preload=$shim:$work/ioctl.so under default "$programs/registered" other >"$work/out" 2>&1
says 'loading: the ioctl of another library is called' 'ioctl: 77' "$work/out"

finish
