#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Children that give up their privileges: what the border between relatives costs
#
#      bench/border.sh [master] [daemon] [free] [call] [orphan]
#
# A process that changes its user, or enters a sandbox, becomes a stranger to its relatives.
# The programs bench/plain_border*.c do that; their heads say how. They run by themselves
# (plain), with huge pages (huge, in some rows), and under the shim. All sides run in turns,
# and each turn begins with another side. A process counts by the median of its rounds. Each
# line has the 95 % interval of the ratio.
#
#   master  a root master whose 8 workers dropped rewrites all, waits, and forks
#   daemon  a child that drops for each of 1 000 connections
#   free    two workers that dropped free 90 %, and then the master does
#   call    the call itself: in a child, without relatives, and toggled in a loop
#   orphan  a child whose parent has gone rewrites all, a tenth, nothing; daemons
#
# Bars: later forks of the master 30 times faster than plain; p99 of requests at most 1.02
# times, memory at most 1.1 times plain's after ten seconds. The first call in a child takes
# at most 1 ms; without relatives at most 1 us longer than plain's; setfsuid() at most 1.03
# times.
#
# BORDER_TOTAL (2G), BORDER_BLOCK (16M) and BORDER_SECONDS (10) are the memory, its blocks,
# and the wait. It needs root for setuid(); without root the programs set no_new_privs, and
# `call` is skipped.
. "$(dirname "$0")/common.sh"
need "$bin/plain_measure" "$bin/plain_border" "$shim"

turns_of 6 3
total=${BORDER_TOTAL:-2G} seconds=${BORDER_SECONDS:-10} block=${BORDER_BLOCK:-16M}
connections=1000 toggles=100000
if quick; then
	total=${BORDER_TOTAL:-256M} seconds=${BORDER_SECONDS:-2}
	connections=200 toggles=20000
fi
limit=900

once() { # SIDE MODE ARGS...: one process
	program=$bin/plain_border
	case $2 in child | alone | toggle) program=${program}_call ;; esac
	shift
	measured "$side" "$total" "$program" -m "$@"
}

# all NAME SIDES MODE ARGS...: runs the sides in turns; line() reports them as NAME
all() {
	name=$1 sides=$2
	shift 2
	in_turns "$sides" once "$@"
	sed -i 's/^rss$/system/' "$tmp/of/by" # the programs measure the system then
}

# line CASE FIGURE UNIT ON BAR: ours against plain and huge pages
line() {
	of_shim=$tmp/of/shim.$2 memory='' of_huge=-
	[ "$3" != MiB ] || memory=$(peak_by "$tmp/of/by")
	report_pairs border "$name/$1" "$3" "$of_shim" "$tmp/of/plain.$2" "$4" "$5" "$memory"
	case $4 in speedup | faster) of_huge=faster ;; esac
	[ ! -e "$tmp/of/huge.$2" ] || report_pairs border "$name/$1/huge" "$3" "$of_shim" \
		"$tmp/of/huge.$2" $of_huge 0 "$memory"
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

call_row() {
	[ "$(id -u)" = 0 ] || {
		echo '  border: call skipped (only root can change its user)'
		return
	}
	all "call-child-$total" 'plain shim' child -n 20 -t "$total" -b "$block"
	line first first_us us ours 1000
	line three all_us us - 0
	line again again_ns ns - 0
	line memory growth_mib MiB - 0
	all call-alone 'plain shim' alone -t 256M -b "$block" -n 9
	paste "$tmp/of/shim.first_us" "$tmp/of/plain.first_us" |
		awk '{ print $1 - $2 }' >"$tmp/of/shim.extra"
	line first first_us us - 0
	row "$name/first-beyond-plain" us extra - ours 1
	line again again_ns ns - 0
	for child in without beside; do
		set --
		[ $child = without ] || set -- -c
		all "call-toggle-$child-child" 'plain shim' toggle -t "$total" \
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

[ $# -gt 0 ] || set -- master daemon free call orphan
for part in "$@"; do
	case $part in
	master | daemon | free | call | orphan) "${part}_row" ;;
	*) fail "there is no row $part" ;;
	esac
done
