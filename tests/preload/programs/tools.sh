#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Tools with large inputs: compressors with threads, sorts that spill, perl that
# forks, git on a history of its own.
. "$(dirname "$0")/lib.sh"

# 50 MB of text that compresses like text does
for ((i = 0; i < 20; i++)); do
	cat /usr/include/*.h /usr/share/common-licenses/* 2>/dev/null
done | awk '{ print NR % 9973, $0, NR * 7919 % 100003 }' | head -c 50000000 \
	>"$work/text"
text=$work/text
head -c 12000000 "$text" >"$work/some"

compare 'sort, in memory' bash -c 'sort -S 300M --parallel=2 "$1" | cksum' \
	sort "$text"
compare 'sort, by numbers, with files' bash -c 'sort -S 8M -k1,1n -k2 -T "$2" \
	"$1" | cksum' sort "$text" "$work"
compare 'sort, compressed files' bash -c 'sort -S 20M -T "$2" --parallel=2 \
	--compress-program=gzip "$1" | cksum' sort "$work/some" "$work"
compare 'shuf, uniq, join' bash -c 'shuf --random-source="$1" "$1" | sort |
	uniq -c | head -n 100000 >"$2/u" && sort -k2 "$2/u" | cut -c1-60 >"$2/s" &&
	join -j 2 "$2/s" "$2/s" | cksum; tac "$1" | cksum; split -n l/7 "$1" \
	"$2/part" && cat "$2"/part* | cmp - "$1"' tools "$work/some" "$work"
compare 'cp, dd, od, cmp' bash -c 'cp "$1" "$2/copy" && cmp "$1" "$2/copy" &&
	dd if="$1" bs=9M status=none | od -An -v -tx8 | tail -n 1; sha256sum <"$2/copy"' \
	cp "$text" "$work"
compare 'grep' bash -c 'grep -c -E "(in|ou)t.*[0-9]{5}$" "$1"; grep -c -F -f <(
	cut -c1-6 "$1" | head -n 50000 | sort -u) "$1"' grep "$work/some"
compare 'awk' awk '{ n[$2 $3] += $1; l[NR] = $0 } END { for (w in n) s += n[w]
	print s, length(l[NR / 2]) }' "$text"
compare 'diff' bash -c 'sed "5~9973s/e/E/" "$1" | diff "$1" - | cksum' \
	diff "$work/some"
compare_if zstd 'zstd' bash -c 'for o in -1 -9 "-3 --long=27" "-15 -T2" \
	"-3 -T2 --rsyncable"; do zstd -q -c $o "$1" >"$2/z"; cksum <"$2/z"
	zstd -q -d -c --long=27 "$2/z" | cmp - "$1"; done' zstd "$work/some" "$work"
compare_if zstd 'zstd, large' bash -c 'zstd -q -c -T2 "$1" | zstd -q -d -c |
	cksum' zstd "$text"
compare_if zstd 'zstd, a dictionary' bash -c 'mkdir -p "$2/samples" &&
	head -c 4000000 "$1" | split -b 8K - "$2/samples/" &&
	zstd -q --train "$2"/samples/* -o "$2/dict" -f 2>&1 &&
	zstd -q -D "$2/dict" -c "$2/samples/aa" | cksum && cksum <"$2/dict"' \
	zstd "$text" "$work"
compare_if xz 'xz' bash -c 'xz -6 -T2 --block-size=4MiB -c "$1" >"$2/x"
	cksum <"$2/x"; xz -dc -T2 "$2/x" | cmp - "$1"' xz "$work/some" "$work"
compare_if bzip2 'bzip2' bash -c 'bzip2 -9 -c "$1" >"$2/b"; cksum <"$2/b"
	bzip2 -dc "$2/b" | cmp - "$1"' bzip2 "$work/some" "$work"
compare_if openssl 'openssl' bash -c 'openssl enc -aes-256-ctr -K 01 -iv 02 \
	-in "$1" 2>&1 | openssl dgst -sha512' openssl "$text"
compare_if tar 'tar' bash -c 'tar -C /usr/include -czf "$1/t" --sort=name . &&
	rm -rf "$1/d" && mkdir "$1/d" && tar -C "$1/d" -xzf "$1/t" &&
	diff -r --no-dereference /usr/include "$1/d" && tar -tzf "$1/t" | cksum' \
	tar "$work"

compare_if perl 'perl' perl -e '
	my $text = do { local $/; open my $f, "<", $ARGV[0]; <$f> };
	my (%count, @words); $count{$_}++, push @words, $_ for $text =~ /\w+/g;
	print scalar(@words), " ", scalar(keys %count), "\n";
	my @kids;
	for my $i (1 .. 8) {
		pipe my $r, my $w;
		if (!(my $pid = fork)) {
			$words[$_] = reverse $words[$_] for map { $_ * 8 + $i } 0 .. 9999;
			substr($text, $i * 1000, 500) = "x" x 700;
			print $w unpack("%32C*", $text), " ", join("", @words[0 .. 99]), "\n";
			close $w; exit $i;
		}
		$text .= "more" x 1000;
		close $w; print <$r>; wait; print $? >> 8, "\n";
	}
	my @sorted = sort { $count{$b} <=> $count{$a} || $a cmp $b } keys %count;
	print "@sorted[0 .. 50]\n", unpack("%32C*", $text), "\n"' "$work/some"

compare_if git 'git' bash -c '
	export GIT_AUTHOR_DATE="1000000000 +0000" GIT_CONFIG_NOSYSTEM=1
	export GIT_COMMITTER_DATE=$GIT_AUTHOR_DATE
	export HOME=$2/home; rm -rf "$2/git" "$HOME"; mkdir -p "$2/git" "$HOME"
	cd "$2/git" && git init -q . && git config user.name a &&
	git config user.email b && git config pack.threads 2 || exit 1
	for i in 1 2 3 4 5 6; do
		sed "${i}~997s/e/$i/g" "$1" | split -b 3M - "file"
		head -c 300000 /usr/share/common-licenses/GPL-3 >"text$i"
		git add . && git commit -qm "commit $i"
	done
	git log --stat --oneline | cksum; git blame -s text2 | cksum
	git checkout -qb other HEAD~2 && echo a >>text1 && git commit -qam other &&
	git merge -q -m merge - && git log --graph --oneline
	git repack -adfq --depth=20 --window=20 && git fsck --full 2>&1 | sort
	git rev-list --objects --all | cksum; git grep -c define | cksum
	git archive HEAD | cksum; git clone -q --no-local . ../clone 2>&1 &&
	git -C ../clone rev-parse HEAD; rm -rf ../clone' git "$work/some" "$work"
finish
