# SPDX-License-Identifier: MIT
#
# demo.sh: make demo on little data. It ends with 0, prints its table and its plot, says what it
# skips, marks losses, and leaves no process and no file, also after Ctrl-C.
. tests/preload/lib.sh

parts='redis images clone send train'

# demo NAME=VALUE...: runs it; DEMO_TEST in the environment marks its processes
demo() {
	env DEMO_TEST="$work" DEMO_MIB=16 DEMO_SECONDS=0 DEMO_PARTS="$parts" \
		BUILD="$BUILD" "$@" bash bench/demo.sh
}
# Processes of the demo, one a line: number, name, command. redis-server writes its title over its
# environment, so the folder of a process and its command count, too.
left() {
	local process marks command
	for process in /proc/[0-9]*; do
		marks=$(tr '\0' '\n' <"$process/environ" | grep '^DEMO_TEST=')
		command=$(tr '\0' ' ' <"$process/cmdline")
		case $marks$command$(readlink "$process/cwd") in
		*"$work"*) echo "${process#/proc/} $(cat "$process/comm") $command" ;;
		esac
	done 2>/dev/null
}
files() { find "$work" -name 'cowshed-bench.*'; }
nothing_left() { # NAME
	{ left && files; } >"$work/left"
	if [ -s "$work/left" ]; then fail "$1" "$work/left"; else pass "$1"; fi
}

if demo >"$work/out" 2>&1; then pass demo:ends; else fail demo:ends "$work/out"; fi
nothing_left demo:leaves_nothing
ran=
for part in $parts; do
	if grep -q "^  $part: skipped: " "$work/out"; then
		skip "demo:$part" "$(sed -n "s/^  $part: skipped: //p" "$work/out")"
		continue
	fi
	ran+=" $part"
	case $part in
	redis) text='  each later fork() stops it, ms' ;;
	images) text='  starting a worker (its fork), ms' ;;
	clone) text='  a copy, and all of it is rewritten, ms' ;;
	send) text='  until the process has read a byte, ms' ;;
	train) text='  the loop stops for a checkpoint, ms' ;;
	esac
	# Two figures, and a word of each comparison.
	says "demo:table:$part" "^$text  *[0-9.]*  *[0-9.]*  .*\(faster\|SLOWER\|the same\)$" "$work/out"
done
says demo:plot 'worse | better with cowshed' "$work/out"

# Losses look like losses, whatever was measured here.
{
	printf 'title\tprogram\n'
	printf 'row\ttime\ta\tms\ttime\t0.001\t1000\t2000\n'
	printf 'row\tmemory\tb\tMiB\tmemory\t1\t100\t150\n'
	printf 'row\trate\tc\t1/s\trate\t1\t100\t50\n'
	printf 'row\tgain\td\tms\ttime\t1\t500\t5\n'
	printf 'row\teven\te\tms\ttime\t1\t100\t101\n'
} | awk -f bench/demo_page.awk >"$work/page"
says demo:slower '^  time, ms  *1.00  *2.00  2.0 x SLOWER$' "$work/page"
says demo:more '^  memory, MiB  *100  *150  1.50 x MORE$' "$work/page"
says demo:fewer '^  rate, 1/s  *100  *50.0  2.0 x SLOWER$' "$work/page"
says demo:faster '^  gain, ms  *500  *5.00  100 x faster$' "$work/page"
says demo:even '^  even, ms  *100  *101  the same$' "$work/page"
says demo:bar_of_a_loss '^a  *<*| 2.0 x SLOWER$' "$work/page"
says demo:bar_of_a_gain '^d  *|#* 100 x faster$' "$work/page"

# Without the programs of a part the demo says so and goes on. PATH has all programs but these.
mkdir "$work/bin"
ln -s /usr/bin/* /bin/* "$work/bin/" 2>/dev/null
rm -f "$work"/bin/redis-*
demo DEMO_PARTS='redis images' PATH="$work/bin" >"$work/out" 2>&1
case $ran in *images*)
	says demo:counts_what_ran '^A turn has one process a side. In it are 3 passes of 4 workers.$' "$work/out" ;;
esac
says demo:says_what_it_skips '^  redis: skipped: no redis-cli (Debian: redis-tools)$' "$work/out"

# Ctrl-C: the terminal sends SIGINT to the group of processes in front. A job of a shell without
# job control would ignore it.
interrupt() { # PART PATTERN
	local pid tries=0
	set -m
	demo DEMO_PARTS="$1" DEMO_MIB=2048 >"$work/out" 2>&1 &
	pid=$!
	set +m
	until left | grep -q -- "$2"; do
		kill -0 $pid 2>/dev/null && [ $((tries += 1)) -lt 600 ] || break
		sleep 0.1
	done
	kill -INT -- -$pid
	wait $pid
	[ $? = 130 ] && pass "demo:interrupted:$1" || fail "demo:interrupted:$1" "$work/out"
	nothing_left "demo:interrupted:$1:leaves_nothing"
}
case $ran in *redis*) interrupt redis '^[0-9]* redis-server ' ;; esac
case $ran in *images*) interrupt images '^[0-9]* python.*demo.py images' ;; esac
finish
