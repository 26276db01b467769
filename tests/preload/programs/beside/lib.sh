# SPDX-License-Identifier: MIT
#
# lib.sh: runs a program beside itself, with the shim; sourced, never run.
#
# A story starts a program by "$@", and prints what came of it: its output, its messages and its exit
# status must be the same without the shim and with it, under each of $settings. Nothing asserts a
# time or a size.
#
# packages.txt has Debian's names of the programs. Without one of them its story is skipped.
#
# ROUNDS=3 repeats all sides in turns, each run in a fresh cgroup, and writes processor time and peak
# memory into build/programs, from which scripts/programs-table.sh makes a table. Cgroups
# need root. A peak counts all processes of the story's program, their memfds and page tables, and
# the file pages that they were first to touch.
#
# SHOW=1 prints what a story says. ONLY='ruby perl' picks stories. SETTINGS='default mmap=1M' picks
# sides; SPOIL=default leaves out half of that side's output, to see a test fail.
. "$(dirname "$0")/../../lib.sh"
limit=${COMMAND_LIMIT:-120}
settings=${SETTINGS:-default threshold=4096 threshold=65536,mmap=65536 mmap=1M}
rounds=${ROUNDS:-0}
results=$root/build/programs/$(basename "$0" .sh)
PATH=$PATH:/usr/sbin:/usr/lib/postgresql/15/bin
# As most systems have it: below the hard limit (docs/limits.md, "Programs that look at their descriptors").
ulimit -Sn 1024
port=$((20000 + ($$ + RANDOM) % 20000))
export HOME=$work/home TMPDIR=$work/tmp
mkdir "$HOME" "$TMPDIR"
# Other users reach the shim and the data here.
chmod 711 "$work"
mkdir "$work/lib"
cp -L "$BUILD"/lib/*.so* "$work/lib"
shim=$work/lib/libcowshed-preload.so
if [ "$(id -u)" -eq 0 ]; then nobody='setpriv --reuid=65534 --regid=65534 --clear-groups'; else nobody=; fi

# ---- The cgroup of a run ----
group() { awk -F: -v c="$1" '$2 == c { print $3 }' /proc/self/cgroup; }
memory=/sys/fs/cgroup/memory$(group memory) cpu=/sys/fs/cgroup/cpuacct$(group cpuacct) v2=
if ! [ -e "$memory/memory.max_usage_in_bytes" ]; then
	memory=$(dirname "/sys/fs/cgroup$(group '')") cpu=$memory v2=1
fi
memory=$memory/cowshed-programs.$$ cpu=$cpu/cowshed-programs.$$

[ "$rounds" -eq 0 ] || { mkdir -p "${results%/*}" && touch "$results"; }
# new_results NAME: those of the last run go
new_results() { awk -F '\t' -v name="$1" '$1 != name' "$results" >"$work/results" && cp "$work/results" "$results"; }

fresh_group() { mkdir "$memory" && { [ -n "$v2" ] || mkdir "$cpu"; }; }

# figures: microseconds of processor time, and KiB at the peak; then the cgroup goes
figures() {
	if [ -n "$v2" ]; then
		echo "$(awk '/^usage_usec/ { print $2 }' "$cpu/cpu.stat")" "$(($(cat "$memory/memory.peak") / 1024))"
	else
		echo "$(($(cat "$cpu/cpuacct.usage") / 1000))" "$(($(cat "$memory/memory.max_usage_in_bytes") / 1024))"
	fi
}

# What the story left behind ends here, before the next one begins.
end_group() {
	local i pids
	for i in 1 2 3 4 5 6 7 8 9 10; do
		pids=$(cat "$memory/cgroup.procs")
		[ -n "$pids" ] || break
		kill -KILL $pids 2>/dev/null
		read -rt 0.1 <> <(:) || :
	done
	rmdir "$memory" "$cpu" 2>/dev/null
}

# ---- A run ----

# side_of WHO SIDE: tells the story; $work/WHO.out, .err and $status
side_of() {
	local who=$1 side=$2 how=()
	[ -z "$measured" ] || how=(sh -c 'for g in '"$memory $cpu"'; do echo $$ >$g/cgroup.procs; done; exec "$@"' sh)
	how+=(timeout -k 5 "$limit" env)
	[ "$side" = none ] || how+=("LD_PRELOAD=$shim")
	case $side in *=*) how+=("COWSHED_OPTIONS=$side") ;; esac
	rm -rf "$work/story" "$HOME" "$TMPDIR"
	mkdir "$work/story" "$HOME" && mkdir -m 1777 "$TMPDIR" && chmod 777 "$work/story"
	(story "${how[@]}") >"$work/$who.out" 2>"$work/$who.err" </dev/null
	status=$?
	[ "${SPOIL:-}" != "$side" ] || sed -i '1~2d' "$work/$who.out"
}

# compared NAME SIDE: one line of the test. False if it differs
compared() {
	local before=$failures
	plain=$plain_status got=$status
	if [ -s "$work/story/log" ]; then tail -n 20 "$work/story/log" >"$work/shim.log"; else : >"$work/shim.log"; fi
	same "$1 at $2"
	[ "$failures" -eq "$before" ]
}

# once NAME SIDE ROUND: a run that is measured; a line of results
once() {
	local measured=1 same=same
	"$BUILD/bench/plain_measure" -w 256M >/dev/null 2>&1 # all sides find memory that the host has
	fresh_group || return 1
	side_of shim "$2"
	compared "$1" "$2, round $3" || same=differs
	printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$(figures | tr ' ' '\t')" $same >>"$results"
	end_group
}

# tell NAME 'PROGRAM...': the function `story HOW...`, on all sides, where the system has the programs
tell() {
	local name=$1 needed side round measured=
	case " ${ONLY:-$name} " in *" $name "*) ;; *) return ;; esac
	for needed in $2; do
		command -v "$needed" >/dev/null || { skip "$name no $needed here" && return; }
	done
	local began=$SECONDS
	side_of plain none
	plain_status=$status
	[ -z "${SHOW:-}" ] || { echo "$name: status $status, $((SECONDS - began)) s" && head -n 8 "$work/plain.out" "$work/plain.err" | cut -c1-150; }
	if [ "$status" -ne 0 ] || ! [ -s "$work/plain.out" ]; then
		[ "$(id -u)" -eq 0 ] || { skip "$name it fails without the shim, and this is not root" && return; }
		fail "$name without the shim" "$work/plain.out" "$work/plain.err" "$work"/story/*log
		return
	fi
	[ "$rounds" -eq 0 ] || new_results "$name"
	local order="none $settings"
	for ((round = 0; round < rounds; round++)); do
		for side in $order; do
			once "$name" "$side" "$round" || { skip "$name no cgroup can be made: not measured" && return; }
		done
		order="${order#* } ${order%% *}"
	done
	[ "$rounds" -eq 0 ] || return
	for side in $settings; do
		side_of shim "$side"
		compared "$name" "$side"
	done
}

# beside NAME PROGRAM COMMAND...: the command is the story
beside() {
	local name=$1 needed=$2
	shift 2
	command=("$@")
	story() { "$@" "${command[@]}"; }
	tell "$name" "$needed"
}

# serve READY COMMAND...: starts a server by $how, and waits until READY is true; $main is its process
serve() {
	local ready=$1
	shift
	"${how[@]}" "$@" >>"$work/story/log" 2>&1 &
	pid=$!
	if limit=20 until_true $ready && main=$(pgrep -o -P "$pid"); then return; fi
	kill -KILL -- "-$pid" 2>/dev/null
	return 1
}

# stop [SIGNAL]: ends it, and says how it ended; its group is that of timeout
stop() {
	kill -"${1:-TERM}" "$main"
	ended
}
ended() {
	wait "$pid" 2>/dev/null
	echo "exit status $?"
	kill -KILL -- "-$pid" 2>/dev/null
	return 0
}
