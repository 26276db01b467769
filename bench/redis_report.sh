# SPDX-License-Identifier: MIT
#
# The figures of bench/redis.sh, which reads this file at its end (sourced, not run)
#
# $tmp/SIDE.FIGURE has the figures of a side, one a server; SIDE.each has all later forks.
# $sides comes from the script. A row of the table: the figure, its name in the report,
# its unit, and the bar against the plain server, then the one against huge pages.

by=$(peak_by "$tmp/by")
report redis later us "$tmp/shim.later" - ours 1000
report redis later/each us "$tmp/shim.each" - worst 1000
# A library without this counter leaves the file empty.
[ ! -s "$tmp/shim.wait" ] || report redis wait-for-a-slice us "$tmp/shim.wait" - worst 1000
[ "$sides" != shim ] || sides=alone # bench/pairs.sh leaves out the rivals
for side in $sides; do
	[ $side != shim ] || continue
	while read -r figure name unit on bar on_thp bar_thp; do
		[ $side = plain ] || on=$on_thp bar=$bar_thp
		how=
		[ $figure != peak ] || how=$by
		[ $side != alone ] || {
			report redis "$name" "$unit" "$tmp/shim.$figure" - - 0 "$how"
			continue
		}
		report redis "$name/$side" "$unit" "$tmp/shim.$figure" \
			"$tmp/$side.$figure" "$on" "$bar" "$how"
	done <<'END'
first first us speedup 10 faster 0
later later us speedup 30 speedup 10
before_us request-before us faster 0 faster 0
saving_us request-while-saving us speedup 0.98 faster 0
after_us request-after us speedup 0.98 faster 0
between_us 99.9%-between us ratio 1 - 0
between_worst_us worst-between us - 0 - 0
during_us 99.9%-while-saving us - 0 - 0
during_worst_us worst-while-saving us - 0 - 0
save_ms save ms faster 0 faster 0
peak peak MiB ratio 1.05 - 0
END
done
