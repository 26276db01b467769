#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Real programs on real files, with and without the shim: the same output?
#
# Each program of bench/programs_inputs.sh runs three times on each side, in turns. With
# PROGRAMS_LINES it also runs under glibc with huge pages, and under jemalloc with
# thp:always if that is installed. The output must be the same to the byte on all sides.
# The exit status must be the same with and without the shim. Wall time, fork pause and
# peak memory are medians. The peak is what a fresh memory cgroup was charged, or the largest
# RSS if no cgroup can be made. The programs write to a temporary folder alone, which is
# removed. The exit status is 0 only if every output was identical and every program
# succeeded.
#
# PROGRAMS_ONLY="sort xz" runs some of the programs, PROGRAMS_SMALL=1 all of them on small
# inputs. PROGRAMS_LINES names a file for lines in the format of bench/common.h.
. "$(dirname "$0")/common.sh"
. "$here/programs_inputs.sh"
need "$build/lib/libcowshed-preload.so"

measure=$bin/plain_measure
if [ ! -x "$measure" ]; then
	measure=$tmp/measure
	${CC:-cc} -O2 -std=gnu11 -I"$root" -o "$measure" \
		"$here/plain_measure.c" || fail 'no compiler'
fi
turns=${BENCH_ROUNDS:-3}
text=200 array=400 rows=200000
if [ "${PROGRAMS_SMALL:-0}" != 0 ] || quick; then
	text=40 array=80 rows=40000
fi
: "${PROGRAMS_LINES:=/dev/null}"

sides='without with' rivals=
if [ "$PROGRAMS_LINES" != /dev/null ]; then
	jemalloc=$(library jemalloc)
	sides="$sides huge${jemalloc:+ thp}"
	rivals='Below each program: glibc with huge pages (huge), jemalloc with
huge pages (thp, if installed), and x: ours to that rival. '
fi

# once NAME SIDE: runs NAME once; appends its checksum, times, peak and status
once() {
	preload='' setting=
	case $2 in
	with) preload=$shim ;;
	huge) setting=GLIBC_TUNABLES=$huge_pages ;;
	thp) preload=$jemalloc setting=MALLOC_CONF=thp:always ;;
	esac
	rm -f "$tmp/pause" "$tmp/result"
	env ${setting:+"$setting"} PROGRAMS_PAUSE="$tmp/pause" "$measure" -o "$tmp/result" -p "$preload" \
		-d "$tmp/in" -- sh -c "$(program_command "$1")" \
		2>"$tmp/$1.$2.errors" | cksum >"$tmp/sum"
	[ -s "$tmp/result" ] || fail "$1 could not be measured ($2)"
	cat "$tmp/sum" >>"$tmp/$1.$2.sums"
	for figure in wall_ms cpu_ms peak_kib status peak_by; do
		field $figure <"$tmp/result" >>"$tmp/$1.$2.$figure"
	done
	[ -s "$tmp/pause" ] && median "$tmp/pause" >>"$tmp/$1.$2.pause"
	return 0
}

# One run that does not count: the first program that reads a file pays for its pages.
warm_up() { # NAME
	once "$1" without
	rm -f "$tmp/$1".*
	LD_PRELOAD=$shim true
}

same() { # FILE...: are all lines of the files the same?
	[ "$(sort -u "$@" | wc -l)" = 1 ] && echo yes || echo NO
}

number() { # FILE FACTOR FORMAT
	[ -s "$1" ] || { echo -; return; }
	awk -v v="$(median "$1")" -v f="$2" -v p="$3" \
		'BEGIN { printf p, v * f }'
}

quotient() { # FILE FILE
	[ -s "$1" ] && [ -s "$2" ] || { echo -; return; }
	awk -v a="$(median "$1")" -v b="$(median "$2")" \
		'BEGIN { printf "%.2f", a / (b > 0 ? b : 1e-9) }'
}

row() { # NAME
	base=$tmp/$1
	out=$(same "$base.without.sums" "$base.with.sums")
	code=$(same "$base.without.status" "$base.with.status")
	[ "$out$code" = yesyes ] || worst=1
	# shellcheck disable=SC2046
	printf '%-7s %-4s %-4s %6s %6s %5s %7s %7s %6s %6s %5s\n' \
		"$1" "$out" "$code" \
		$(number "$base.without.wall_ms" 0.001 %.2f) \
		$(number "$base.with.wall_ms" 0.001 %.2f) \
		$(quotient "$base.with.wall_ms" "$base.without.wall_ms") \
		$(number "$base.without.pause" 1 %.0f) \
		$(number "$base.with.pause" 1 %.0f) \
		$(number "$base.without.peak_kib" 0.0009765625 %.0f) \
		$(number "$base.with.peak_kib" 0.0009765625 %.0f) \
		$(quotient "$base.with.peak_kib" "$base.without.peak_kib")
	for side in $sides; do
		case $side in with*) continue ;; esac
		[ "$(same "$base.without.sums" "$base.$side.sums")" = yes ] ||
			fail "$1 has another output under $side"
		printf '%-20s %20s %5s\n' "  ($side)" \
			"$(number "$base.$side.wall_ms" 0.001 %.2f)" \
			"$(quotient "$base.with.wall_ms" "$base.$side.wall_ms")"
	done
	{
		# It runs without a cgroup, too, and has no bar then.
		by=$(peak_by "$base".*.peak_by)
		[ "$by" = cgroup ] && peak_on=ratio || peak_on=-
		report programs_same "$1-peak" KiB "$base.with.peak_kib" \
			"$base.without.peak_kib" $peak_on 1.10 "$by"
		report programs_same "$1-wall" ms "$base.with.wall_ms" \
			"$base.without.wall_ms" - 0
		for side in $sides; do
			case $side in with*) continue ;; esac
			report programs_same "$1-wall/$side" ms "$base.with.wall_ms" \
				"$base.$side.wall_ms" - 0
			report programs_same "$1-peak/$side" KiB "$base.with.peak_kib" \
				"$base.$side.peak_kib" - 0 "$by"
		done
		report programs_same "$1-cpu" ms "$base.with.cpu_ms" \
			"$base.without.cpu_ms" - 0
		[ ! -s "$base.without.pause" ] ||
			report programs_same "$1-fork-pause" us "$base.with.pause" \
				"$base.without.pause" faster 0
	} | grep '^bench=' >>"$PROGRAMS_LINES"
}

echo 'Real programs on files of this system, without and with cowshed.'
echo 'The inputs are being prepared ...'
mkdir "$tmp/in" || exit 1
programs_prepare "$tmp/in" $text $array $rows
worst=0 failed=0
done_names=
for name in ${PROGRAMS_ONLY:-$programs}; do
	why=$(program_missing "$name")
	if [ -n "$why" ]; then
		echo "  $name: skipped ($why)"
		continue
	fi
	printf '  %s: %s ' "$name" "$(program_title "$name" "$tmp/in")"
	warm_up "$name"
	turn=0
	while [ $turn -lt "$turns" ]; do
		for side in $sides; do
			once "$name" "$side"
		done
		sides="${sides#* } ${sides%% *}"
		printf .
		turn=$((turn + 1))
	done
	echo
	done_names="$done_names $name"
done
[ -n "$done_names" ] || fail 'nothing could be run'

measured_by='a fresh memory cgroup'
[ "$(peak_by "$tmp"/*.peak_by)" = cgroup ] ||
	measured_by='the largest RSS (no cgroup could be made)'
cat <<TABLE

        same same  wall time, s      x  fork pause, us  peak, MiB         x
program out  exit without  with       without    with without   with
------- ---- ---- ------ ------ ----- ------- ------- ------ ------ -----
TABLE
for name in $done_names; do
	row "$name"
done
cat <<END

Medians of $turns runs a side, in turns. ${rivals}Peak memory: $measured_by.
END
for name in $done_names; do
	bad=$(sort -u "$tmp/$name".*.status | tr '\n' ' ')
	[ "$bad" = '0 ' ] || {
		echo "$name: exit status $bad; the last lines on its stderr:"
		tail -n 3 "$tmp/$name".*.errors
		failed=1
	}
done
[ $worst = 0 ] || echo 'AN OUTPUT OR EXIT STATUS DIFFERS: this is a bug.'
[ $failed = 0 ] || worst=1
cat <<END

Try it on a program of yours:

    ${build#"$root"/}/bin/cowshed run --report -- python3 your_script.py
END
exit $worst
