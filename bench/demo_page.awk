# SPDX-License-Identifier: MIT
#
# demo_page.awk: the table and the plot of bench/demo.sh
#
# Input, with tabs between:
#     title  TEXT
#     row    TEXT  SHORT  UNIT  KIND  FACTOR  TODAY  COWSHED
#
# KIND is time, memory or rate. TODAY and COWSHED are multiplied by FACTOR. `gain` is how many
# times better cowshed is; below 1 it is worse. Within 5 % both are the same, as in
# bench/results.py.

BEGIN {
	FS = "\t"
	even = 1.05
	half = 34 # characters of the longest bar
	printf "\n%-44s %9s %9s\n", "", "today", "cowshed"
}

$1 == "title" {
	print $2
	next
}

$1 == "row" {
	n++
	today = $7 * $6; ours = $8 * $6
	label[n] = $3
	gain[n] = $5 == "rate" ? ratio(ours, today) : ratio(today, ours)
	said[n] = verdict(gain[n], $5)
	printf "%-44s %9s %9s  %s\n", "  " $2 ", " $4, number(today), number(ours), said[n]
}

END {
	if (!n)
		exit 1
	draw()
}

function ratio(a, b) {
	if (b <= 0)
		b = 1e-9
	if (a <= 0)
		a = 1e-9
	return a / b
}

# Three digits; a number of four or more digits in full.
function number(v) {
	if (v >= 100) return sprintf("%.0f", v)
	if (v >= 10) return sprintf("%.1f", v)
	if (v >= 1) return sprintf("%.2f", v)
	return sprintf("%.3f", v)
}

function verdict(g, kind,    up, down) {
	up = kind == "memory" ? "less" : "faster"
	down = kind == "memory" ? "MORE" : "SLOWER"
	if (g >= even) return times(g) " x " up
	if (g <= 1 / even) return times(1 / g) " x " down
	return "the same"
}

function times(g) {
	return g >= 100 ? sprintf("%.0f", g) : g >= 10 ? sprintf("%.0f", g) : \
	    g >= 2 ? sprintf("%.1f", g) : sprintf("%.2f", g)
}

function repeat(c, k,    s) {
	s = ""
	while (k-- > 0)
		s = s c
	return s
}

function bar_of(g) { # its length in characters, with its sign
	g = log(g) / step
	return g < 0 ? -int(0.5 - g) : int(0.5 + g)
}

# Finds the scale: a character is a factor of exp(step). Sets most and least, the longest bars.
function scale(    i, high, low) {
	high = log(10); low = log(2)
	for (i = 1; i <= n; i++) {
		if (log(gain[i]) > high) high = log(gain[i])
		if (-log(gain[i]) > low) low = -log(gain[i])
	}
	step = (high + low) / (half + 4)
	most = bar_of(exp(high)); least = bar_of(exp(low))
}

function draw(    i, k, axis) {
	scale()
	printf "\n%-24s %s\n", "", "worse | better with cowshed; the scale is logarithmic"
	for (i = 1; i <= n; i++) {
		k = bar_of(gain[i])
		printf "%-24s %" least "s|%s %s\n", label[i], repeat("<", -k), repeat("#", k), said[i]
	}
	axis = ""
	for (i = 0; i * log(10) <= most * step + 0.001; i++)
		axis = sprintf("%-" bar_of(exp(i * log(10))) "s%s", axis, "1" repeat("0", i))
	printf "%-24s %" least "s%s\n", "", "", axis
}
