# SPDX-License-Identifier: MIT
#
# The figures of bench/redis.sh, which reads this file at its end (sourced, not run)
#
# $tmp/SIDE.NAME has the figures of a side, one a server; SIDE.all has all later forks.
# $sides and $by come from the script.

by=$(peak_by "$tmp/by")
sort -g "$tmp/shim.all" | tail -n 1 >"$tmp/shim.worst"
report redis first us "$tmp/shim.first" "$tmp/plain.first" speedup 10
report redis later us "$tmp/shim.later" "$tmp/plain.later" speedup 30
report redis later/median us "$tmp/shim.later" - ours 1000
report redis later/worst us "$tmp/shim.worst" - ours 1000
report redis request/saving us "$tmp/shim.saving_us" "$tmp/plain.saving_us" ratio 1.0204
report redis request/after us "$tmp/shim.after_us" "$tmp/plain.after_us" ratio 1.0204
report redis wait-p99.9/between us "$tmp/shim.between_us" "$tmp/plain.between_us" \
	ratio 1.05
report redis wait-p99.9/saving us "$tmp/shim.during_us" "$tmp/plain.during_us" faster 0
report redis wait-worst/between us "$tmp/shim.between_worst_us" \
	"$tmp/plain.between_worst_us" faster 0
report redis save ms "$tmp/shim.save_ms" "$tmp/plain.save_ms" faster 0
report redis peak MiB "$tmp/shim.peak" "$tmp/plain.peak" ratio 1.05 "$by"
# An engine without this counter leaves the file empty.
[ ! -s "$tmp/shim.wait" ] ||
	report redis wait-for-a-slice us "$tmp/shim.wait" - ours 1000

for side in $sides; do
	case $side in plain | shim) continue ;; esac
	bar=faster
	[ $side != thp ] || bar=speedup
	report redis later/$side us "$tmp/shim.later" "$tmp/$side.later" $bar 10
	report redis first/$side us "$tmp/shim.first" "$tmp/$side.first" faster 0
	for name in saving after; do
		report redis request/$name/$side us "$tmp/shim.${name}_us" \
			"$tmp/$side.${name}_us" faster 0
	done
	report redis wait-p99.9/between/$side us "$tmp/shim.between_us" \
		"$tmp/$side.between_us" faster 0
	report redis peak/$side MiB "$tmp/shim.peak" "$tmp/$side.peak" - 0 "$by"
done
