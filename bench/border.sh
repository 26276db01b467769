#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Children that give up their privileges: what the border between relatives costs
#
#      [BASE=CHECKOUT] bench/border.sh [master] [daemon] [free] [living] [call] [orphan]
#                                      [beside]
#
# A process that changes its user, or enters a sandbox, becomes a stranger to its relatives.
# The programs bench/plain_border_*.c do that; their heads say how. They run by themselves
# (plain), with huge pages (huge, in some rows), under the shim, and under the shim of
# another checkout, if BASE names one that is built. All sides run in turns, and each turn
# begins with another side. A process counts by the median of its rounds. Each line has the
# 95 % interval of the ratio.
#
#   master  a root master whose 8 workers dropped rewrites all, waits, and forks
#   daemon  a child that drops for each of 1 000 connections
#   free    two workers that dropped free 90 %, and then the master does
#   living  600 children that live, forked beside allocations: descriptors and mappings
#   call    the call itself: in a child, without relatives, and toggled in a loop
#   orphan  a child whose parent has gone rewrites all, a tenth, nothing; daemons
#   beside  allocations beside living children, and between short-lived ones
#
# Bars: later forks of the master 30 times faster than plain; p99 of requests at most 1.02
# times, memory at most 1.1 times plain's after ten seconds. The first call in a child takes
# at most 1 ms; without relatives at most 1 us longer than plain's; setfsuid() at most 1.03
# times. Allocations take at most 1.1 times as long as those of BASE.
#
# BORDER_TOTAL (2G), BORDER_BLOCK (16M) and BORDER_SECONDS (10) are the memory, its blocks,
# and the wait. BORDER_OPTIONS has options for our shim, as border=fork. It needs root for
# setuid(); without root the programs set no_new_privs, and `call` is skipped.
. "$(dirname "$0")/common.sh"
need "$bin/plain_measure" "$bin/plain_border_master" "$shim"

turns=${BENCH_ROUNDS:-6} total=${BORDER_TOTAL:-2G} seconds=${BORDER_SECONDS:-10}
connections=1000 living=600 toggles=100000 allocations=200
if quick; then
	turns=${BENCH_ROUNDS:-3} total=${BORDER_TOTAL:-256M} seconds=${BORDER_SECONDS:-2}
	connections=200 living=150 toggles=20000 allocations=50
fi
block=${BORDER_BLOCK:-16M}
base=
if [ -n "${BASE:-}" ]; then
	base=$BASE/build/plain/lib/libcowshed-preload.so
	need "$base"
fi

# once SIDE PROGRAM ARGS...: runs one process; appends the median of each of its figures to
# $tmp/SIDE.FIGURE
once() {
	side=$1 preload='' tunables='' options='' program=$bin/plain_border_$2
	shift 2
	case $side in
	shim) preload=$shim options=${BORDER_OPTIONS:-} ;;
	base) preload=$base ;;
	huge)
		tunables=$huge_pages
		set -- "$@" -H ;;
	esac
	"$bin/plain_measure" -w "$warm" >/dev/null # each side finds the same memory
	env ${tunables:+GLIBC_TUNABLES="$tunables"} ${options:+COWSHED_OPTIONS="$options"} \
		timeout 900 "$bin/plain_measure" -o "$tmp/run" -p "$preload" -- \
		"$program" "$@" >"$tmp/out" || fail "failed ($side): $program $*"
	for figure in $(tr ' ' '\n' <"$tmp/out" | sed -n 's/^\([a-z0-9_]*\)=[-0-9].*/\1/p' |
		sort -u); do
		field "$figure" <"$tmp/out" >"$tmp/values"
		median "$tmp/values" >>"$tmp/$side.$figure"
	done
	sed 's/.*peak_by=\([^ ]*\).*/\1/; s/^rss$/system/' "$tmp/run" >>"$tmp/by"
}

# all NAME SIDES PROGRAM ARGS...: runs the sides in turns; line() reports them as NAME
all() {
	name=$1 sides=$2
	shift 2
	[ -z "$base" ] || sides="$sides base"
	rm -f "$tmp"/plain.* "$tmp"/huge.* "$tmp"/base.* "$tmp"/shim.* "$tmp/by"
	turn=0
	while [ $turn -lt "$turns" ]; do
		for on_side in $sides; do
			once "$on_side" "$@"
		done
		sides="${sides#* } ${sides%% *}"
		turn=$((turn + 1))
	done
}

# line CASE FIGURE UNIT ON BAR [BAR-OF-BASE]: ours against plain, huge pages and BASE
line() {
	memory=
	[ "$3" != MiB ] || memory=$(peak_by "$tmp/by")
	report_pairs border "$name/$1" "$3" "$tmp/shim.$2" "$tmp/plain.$2" "$4" "$5" "$memory"
	against=- of_base=${6:+ratio}
	case $4 in speedup | faster) against=faster ;; esac
	[ ! -e "$tmp/huge.$2" ] || report_pairs border "$name/$1/huge" "$3" "$tmp/shim.$2" \
		"$tmp/huge.$2" $against 0 "$memory"
	[ ! -e "$tmp/base.$2" ] || report_pairs border "$name/$1/base" "$3" "$tmp/shim.$2" \
		"$tmp/base.$2" "${of_base:--}" "${6:-0}" "$memory"
}

master_row() {
	all "master-$total" 'plain shim huge' master -t "$total" -b "$block" -s "$seconds"
	line checkpoint checkpoint_us us speedup 30
	line checkpoint-until-gone gone_us us faster 0
	line worker worker_us us speedup 30
	line first-fork first_us us faster 0
	line rewrite rewrite_ms ms - 0
	line memory memory_mib MiB ratio 1.1
}

daemon_row() {
	all "daemon-$total" 'plain shim huge' daemon -t "$total" -b "$block" -s "$seconds" \
		-n $connections
	line request-p50 p50_us us - 0
	line request-p99 p99_us us ratio 1.02
	line fork fork_us us faster 0
	line memory-end end_mib MiB - 0
	line memory settled_mib MiB ratio 1.1
}

free_row() {
	for kept in same different; do
		set --
		[ $kept = same ] || set -- -d
		all "free-$kept-$total" 'plain shim' free -t "$total" -b 4M -s "$seconds" "$@"
		line memory-workers-freed workers_mib MiB - 0
		line memory-all-freed all_mib MiB - 0
	done
}

living_row() {
	for kind in drop keep; do
		set --
		[ $kind = drop ] || set -- -k
		all "living-$living-$kind" 'plain shim' living -t 256M -b "$block" -n $living \
			-s "$seconds" "$@"
		for what in fds memfds files maps; do
			line "$what-half" half_$what count - 0
			line "$what-end" end_$what count - 0
		done
		line fork-last-tenth late_us us faster 0
		line memory memory_mib MiB - 0
	done
}

call_row() {
	[ "$(id -u)" = 0 ] || {
		echo '  border: call skipped (only root can change its user)'
		return
	}
	all "call-child-$total" 'plain shim' call -m child -t "$total" -b "$block"
	line first first_us us ours 1000
	line three all_us us - 0
	line again again_ns ns - 0
	line memory growth_mib MiB - 0
	all call-alone 'plain shim' call -m alone -t 256M -b "$block" -n 9
	for side in shim base; do
		[ ! -e "$tmp/$side.first_us" ] || paste "$tmp/$side.first_us" \
			"$tmp/plain.first_us" | awk '{ print $1 - $2 }' >"$tmp/$side.extra"
	done
	line first first_us us - 0
	report border "$name/first-beyond-plain" us "$tmp/shim.extra" - ours 1
	line again again_ns ns - 0
	for child in without beside; do
		set --
		[ $child = without ] || set -- -c
		all "call-toggle-$child-child" 'plain shim' call -m toggle -t "$total" \
			-b "$block" -n $toggles "$@"
		line setfsuid fsuid_ns ns ratio 1.03
		line seteuid euid_ns ns - 0
	done
}

orphan_row() {
	for kind in all-100 tenth-10 nothing-0 daemon-0 daemon-rewrites-100; do
		set -- -p "${kind##*-}"
		case $kind in daemon*) set -- "$@" -d ;; esac
		all "orphan-${kind%-*}-$total" 'plain shim' orphan -t "$total" -b "$block" \
			-s "$seconds" "$@"
		line memory memory_mib MiB ratio 1.1
		line rewrite rewrite_ms ms - 0
	done
}

beside_row() {
	for kind in drop keep; do
		set --
		[ $kind = drop ] || set -- -k
		all "beside-$kind" 'plain shim' beside -m beside -t 256M -b "$block" \
			-n $allocations "$@"
		line first cold_us us/MiB - 0 1.1
		line later warm_us us/MiB - 0 1.1
		line memory memory_mib MiB - 0
	done
	all cycle 'plain shim' beside -m cycle -t 256M -b "$block" -n $allocations
	line fork pause_us us faster 0
	line allocations alloc_us us - 0 1.1
	line whole cycle_us us - 0 1.1
	line memory memory_mib MiB - 0
}

[ $# -gt 0 ] || set -- master daemon free living call orphan beside
warm=$total
for row in "$@"; do
	case $row in
	master | daemon | free | living | call | orphan | beside) "${row}_row" ;;
	*) fail "there is no row $row" ;;
	esac
done
