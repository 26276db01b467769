# SPDX-License-Identifier: MIT
#
# The 95 % interval of the ratio of two sides that ran in turns
#
# Each input line has two numbers: ours and the rival's of the same turn. With fast=1 the
# ratio is rival / ours. The output is `low=.. high=.. level=..`, or nothing if a number is
# not positive or if there are fewer than two turns.
#
# The interval is that of Wilcoxon's signed-rank test on the logarithms of the ratios. It
# takes the means of all pairs of turns (a turn with itself, too), and leaves out equally many
# at both ends. Fewer than six turns can't give 95 %: then the interval has all means, and
# `level` is the confidence in percent that it really has.

NF == 2 && $1 > 0 && $2 > 0 { d[++n] = fast ? log($2 / $1) : log($1 / $2); next }
{ bad = 1 }

# How many of the 2^n subsets of 1 to n have each sum; returns how many means to leave out.
function left_out(n,    i, s, most, ways, below) {
	most = n * (n + 1) / 2
	ways[0] = 1
	for (i = 1; i <= n; i++)
		for (s = most; s >= i; s--)
			ways[s] += ways[s - i]
	for (s = 0; s <= most / 2; s++) {
		if ((below + ways[s]) / 2 ^ n > 0.025)
			break
		below += ways[s]
	}
	level = s ? 100 * (1 - 2 * below / 2 ^ n) : 100 * (1 - 2 / 2 ^ n)
	return s ? s - 1 : 0
}

# Sorts v[1] to v[n], by inserting with halving steps.
function sort_all(v, n,    gap, i, k, x) {
	for (gap = int(n / 2); gap > 0; gap = int(gap / 2))
		for (i = gap + 1; i <= n; i++) {
			x = v[i]
			for (k = i; k > gap && v[k - gap] > x; k -= gap)
				v[k] = v[k - gap]
			v[k] = x
		}
}

END {
	if (bad || n < 2)
		exit
	for (i = 1; i <= n; i++)
		for (k = i; k <= n; k++)
			mean[++count] = (d[i] + d[k]) / 2
	sort_all(mean, count)
	skip = left_out(n)
	printf "low=%.4g high=%.4g level=%.3g\n", exp(mean[1 + skip]), \
	    exp(mean[count - skip]), level
}
