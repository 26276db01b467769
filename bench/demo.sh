#!/bin/sh
# SPDX-License-Identifier: MIT
#
# `make demo`: real programs, today's way and with cowshed, in about a minute
#
# The parts are redis-server that saves (bench/demo_redis.sh), and the Python programs of
# bench/demo.py: workers forked beside a data set, a copy of an array, an array for
# another process, checkpoints of training. Each part runs once on each side, in turns.
# More turns follow while the time allows, three at most. bench/demo_page.awk prints the
# medians as a table and a plot. The losses are marked. Nothing here is a bar. A part
# whose programs are missing is skipped.
#
# A part runs in a session of its own. At the end, or after Ctrl-C, all of the session is
# killed, so no server stays behind. The exit status is 1 if a part failed.
#
#     DEMO_PARTS='redis clone'   only these parts
#     DEMO_SECONDS=50            begin no further turn that would end later than this
#     DEMO_MIB=64                at most so much data in each part
. "$(dirname "$0")/common.sh"
measure=$bin/plain_measure
need "$measure" "$shim"
. "$here/demo_redis.sh"
seconds=${DEMO_SECONDS:-50}

# ---- How much data ------------------------------------------------------------

free_mib=$(awk '/^MemAvailable:/ { print int($2 / 1024) }' /proc/meminfo)
# size MOST PERCENT: MiB for a part: MOST, PERCENT of the free memory, DEMO_MIB
size() {
	echo "$1 $((free_mib * $2 / 100)) ${DEMO_MIB:-$1}" |
		awk '{ m = $1; for (i = 2; i <= 3; i++) if ($i < m) m = $i; print m < 8 ? 8 : m }'
}
mib_of() {
	case $1 in
	redis) size 320 16 ;;
	images) size 2048 40 ;;
	clone) size 1024 30 ;;
	send) size 256 8 ;;
	train) size 96 5 ;;
	esac
}
title_of() { # PART MIB
	case $1 in
	redis) echo "redis-server with $2 MiB, saved $saves times under overwriting clients" ;;
	images) echo "NumPy: $2 MiB of images (2.25 MiB each); 4 workers are forked for each pass" ;;
	clone) echo "NumPy: an array of $2 MiB is copied: np.copy() | cowshed.clone()" ;;
	send) echo "An array of $2 MiB to a process: multiprocessing | cowshed.multiprocessing" ;;
	train) echo "PyTorch: training that saves $2 MiB: deepcopy(), thread | cowshed.checkpoint()" ;;
	esac
}

# ---- What can run here ----------------------------------------------------------

python=$(cd "$root" && scripts/python.sh numpy || echo python3)
can() { # PYTHON MODULE: importing PyTorch itself takes seconds
	PYTHONPATH=$build/python "$1" -c "import importlib.util, sys
sys.exit(not importlib.util.find_spec('$2'))" >/dev/null 2>&1
}
torch_python=
for exe in "$python" python3; do
	[ -n "$torch_python" ] || ! can "$exe" torch || ! can "$exe" numpy || torch_python=$exe
done
# Prints why a part can't run, or nothing.
missing() {
	[ "$1" != redis ] || { redis_missing; return; }
	if ! can "$python" numpy; then
		echo 'no python3 with NumPy (Debian: python3-numpy)'
	elif [ "$1" = train ] && [ -z "$torch_python" ]; then
		echo 'no PyTorch (pip install torch)'
	elif [ "$1" != images ] && ! can "$python" cowshed._cowshed; then
		echo 'no Python package: it needs Python 3.11 or newer, and python3-dev'
	fi
}

# ---- Running ----------------------------------------------------------------------

# Ends the processes of the part that runs, if any. plain_measure then ends by itself,
# and removes the cgroup. If a part has only just begun, its session is not known yet, or
# it is no session yet: so its first process is killed, too.
job=
stop_job() {
	[ -n "$job" ] || return 0
	tries=0
	until [ -s "$tmp/session" ] || [ $tries = 100 ] || ! kill -0 "$job" 2>/dev/null; do
		sleep 0.05
		tries=$((tries + 1))
	done
	if [ -s "$tmp/session" ]; then
		session=$(cat "$tmp/session")
		kill -KILL -- "-$session" 2>/dev/null
		kill -KILL "$session" 2>/dev/null
	else
		kill -KILL "$job" 2>/dev/null
	fi
	wait "$job" 2>/dev/null
	job=
}
cleanup_also='trap "" HUP INT TERM PIPE; stop_job'
trap 'exit 141' PIPE

# start SHIM COMMAND...: starts the command in a session of its own; its peak goes to
# $tmp/result. Sets job.
start() {
	rm -f "$tmp/session" "$tmp/result"
	start_shim=$1
	shift
	"$measure" -a -o "$tmp/result" -- sh -c 'echo $$ >"$0" && exec setsid env "$@"' \
		"$tmp/session" ${start_shim:+LD_PRELOAD="$start_shim"} "$@" \
		>"$tmp/log" 2>"$tmp/errors" </dev/null &
	job=$!
}

# Waits for the end of the job, and keeps its peak as a figure of PART and SIDE.
finish() {
	wait "$job"
	status=$?
	job=
	[ $status = 0 ] || return 1
	field peak_kib <"$tmp/result" | awk '{ print $1 / 1024 }' >>"$tmp/$1.$2.peak"
	field peak_by <"$tmp/result" >>"$tmp/by"
}

python_part() { # PART SIDE MIB
	preload=
	[ "$1 $2" != 'images cowshed' ] || preload=$shim
	[ "$1" = train ] && exe=$torch_python || exe=$python
	start "$preload" PYTHONPATH="$build/python" PYTHONDONTWRITEBYTECODE=1 DEMO_FOLDER="$tmp" \
		"$exe" "$here/demo.py" "$1" "$2" "$3"
	finish "$1" "$2" || return 1
	while read -r name value; do
		echo "$value" >>"$tmp/$1.$2.$name"
	done <"$tmp/log"
}

one() { # PART SIDE
	case $1 in
	redis) redis_part "$2" "$(mib_of redis)" ;;
	*) python_part "$1" "$2" "$(mib_of "$1")" ;;
	esac && return
	stop_job
	echo
	echo "  $1 failed ($2):"
	tail -n 3 "$tmp/errors" "$tmp/log" | sed 's/^/    /'
	failed="$failed $1"
	return 1
}

# ---- The page -----------------------------------------------------------------------

# PART FIGURE FACTOR UNIT, what is better (less time, less memory, a greater rate), the
# text in the table, the text in the plot
rows='redis first 0.001 ms time|the first fork() stops the server|redis: first fork
redis later 0.001 ms time|each later fork() stops it|redis: later forks
redis wait 1 ms time|longest wait of a client while it saves|redis: longest wait
redis rate 0.001 1000/s rate|values overwritten while it saves|redis: overwriting
redis peak 1 MiB memory|memory at its peak|redis: memory
images load 0.001 s time|making the images|images: making them
images start 1 ms time|starting a worker (its fork)|images: forking a worker
images pass 1 ms time|a pass: all workers started and done|images: a pass
images one-start 1 ms time|starting a worker beside one array|one array: forking
images peak 1 MiB memory|memory at its peak|images: memory
clone copy 1 ms time|the copy|copy
clone part 1 ms time|the same, and 1 % of it is written|copy, write 1 %
clone all 1 ms time|a copy, and all of it is rewritten|copy, rewrite all
send got 1 ms time|until the process has read a byte|send: a byte read
send summed 1 ms time|until it has added up all bytes|send: all bytes read
send peak 1 MiB memory|memory of both at the peak|send: memory
train pause 1 ms time|the loop stops for a checkpoint|checkpoint: the stop
train beside 1 ms time|longest step while it is written|checkpoint: steps beside
train whole 0.001 s time|9 steps and 3 checkpoints in all|checkpoint: whole loop
train peak 1 MiB memory|memory at its peak|checkpoint: memory'

# The lines for demo_page.awk of the parts that ran.
page() {
	for part in $ran; do
		printf 'title\t%s\n' "$(title_of "$part" "$(mib_of "$part")")"
		echo "$rows" | while IFS='|' read -r figure text short; do
			# shellcheck disable=SC2086
			set -- $figure
			plain=$tmp/$1.plain.$2 ours=$tmp/$1.cowshed.$2
			[ "$1" = "$part" ] && [ -s "$plain" ] && [ -s "$ours" ] || continue
			printf 'row\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$text" "$short" "$4" "$5" \
				"$3" "$(median "$plain")" "$(median "$ours")"
		done
	done
}

# ---- The demo -----------------------------------------------------------------------

now() {
	cut -d. -f1 /proc/uptime
}
began=$(now)
echo "Real programs, today's way and with cowshed, in turns: about a minute."
parts= failed= ran= turn=1
for part in ${DEMO_PARTS:-redis images clone send train}; do
	why=$(missing "$part")
	if [ -n "$why" ]; then
		echo "  $part: skipped: $why"
	else
		parts="$parts $part"
	fi
done
# The host of a virtual machine backs memory at its first touch; no side is to pay for it.
"$measure" -w "$(size 2200 50)M"
sides='plain cowshed'
while [ $turn -le 3 ] && [ -n "$parts" ]; do
	line="  turn $turn:"
	for part in $parts; do
		part_began=$(now)
		[ $turn = 1 ] || [ $((part_began - began + $(cat "$tmp/$part.takes"))) -le "$seconds" ] ||
			continue
		printf '%s %s' "$line" "$part"
		line=
		for side in $sides; do
			one "$part" "$side" || { parts=$(echo " $parts " | sed "s/ $part / /"); continue 2; }
		done
		echo $(($(now) - part_began)) >"$tmp/$part.takes"
		echo . >>"$tmp/$part.turns"
		[ $turn != 1 ] || ran="$ran $part"
	done
	[ -n "$line" ] || echo
	sides="${sides#* } ${sides%% *}"
	turn=$((turn + 1))
done
[ -n "$ran" ] || fail 'nothing could be run'
page | awk -f "$here/demo_page.awk" || fail 'the page could not be made'
turns=$(for part in $ran; do echo "$part $(grep -c . "$tmp/$part.turns")"; done | paste -sd, |
	sed 's/,/, /g')
[ "$(peak_by "$tmp/by")" = cgroup ] && by='a fresh memory cgroup' ||
	by='the largest RSS of one process.
It leaves out memory that no process maps. Run as root, the demo counts all, by a cgroup'
# What a turn has, of the parts that ran.
in_turn=$(for part in $ran; do
	case $part in
	redis) echo "$saves saves" ;;
	images) echo '3 passes of 4 workers' ;;
	clone) echo '3 copies' ;;
	send) echo '3 arrays sent' ;;
	train) echo '3 checkpoints' ;;
	esac
done | paste -sd, | sed 's/,/, /g')
cat <<END

Medians of all that was measured in these turns: $turns.
A turn has one process a side. In it are $in_turn.
Memory: $by.
Try it on a program of yours:

    ${build#"$root"/}/bin/cowshed run --report -- python3 your_script.py
END
[ -z "$failed" ]
