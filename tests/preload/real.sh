#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Real programs under the shim: the same output, messages and exit status. The
# inputs are files of the system itself, some of them several times over.
. "$(dirname "$0")/lib.sh"

cat /usr/share/common-licenses/* /usr/share/perl*/*/*.p[ml] /usr/include/*.h \
	2>/dev/null | head -c 3000000 >"$work/some"
[ -s "$work/some" ] || seq 400000 >"$work/some"
cat "$work/some" "$work/some" "$work/some" >"$work/text"
text=$work/text
must_succeed=1 # what fails alike with and without the shim compares nothing

compare 'ls' ls -lR /usr/include
must_succeed= compare 'ls of nothing' ls /no/such/folder
compare 'true' true
must_succeed= compare 'false' false
compare 'cat' cat "$text"
compare 'sort' sort "$text"
compare 'sort in parallel' sort -S 40M --parallel=3 "$text"
compare 'sort with files' sort -S 1M -T "$work" -u "$text"
compare 'awk' awk '{ n[$1]++ } END { for (w in n) s += n[w] * length(w)
	print s }' "$text"
compare 'sed' sed -n 's/the/THE/gp' "$text"
compare 'grep' grep -c '[a-z]*ing\b' "$text"
must_succeed= compare 'diff' diff "$work/some" "$text"
compare 'gzip' bash -o pipefail -c 'gzip -9 <"$1" >"$TMPDIR/packed" &&
	cksum <"$TMPDIR/packed" && gunzip <"$TMPDIR/packed" | cksum' gzip "$work/some"
compare 'bash' bash -o pipefail -c 'x=$(cat "$1"); y=$x$x; echo ${#y}
	for i in 1 2 3 4 5; do (echo "${y:i*1000:40}" | tr a-z A-Z); done
	a=(); for ((i = 0; i < 20000; i++)); do a+=("item $i"); done
	echo "${#a[@]} ${a[777]}"' bash "$work/some"
compare 'bash pipelines' bash -o pipefail -c 'for i in $(seq 40); do
	head -n $((i * 100)) "$1" | sort | uniq -c | sort -rn | tail -n 1
	done' bash "$text"
must_succeed= compare 'bash jobs' bash -o pipefail -c 'x=$(head -c 1500000 "$1")
	for i in 1 2 3 4 5 6; do (sleep 0; echo "${#x}") & done; wait
	trap "echo bye" EXIT; exit 3' bash "$work/some"

compare_if perl 'perl' perl -e '
	my $text = do { local $/; open my $f, "<", $ARGV[0]; <$f> };
	my %count; $count{$_}++ for $text =~ /\w+/g;
	print "$_ $count{$_}\n" for (sort keys %count)[0 .. 200];
	my $large = $text x 3; print length($large), "\n";
	for my $i (1 .. 5) {
		my $pid = fork;
		if (!$pid) { $large =~ tr/a-z/A-Z/;
			exit(substr($large, 5, 1) eq "x" ? 1 : $i) }
		substr($large, 1000 * $i, 10) = "0123456789";
		waitpid $pid, 0; print $? >> 8, "\n";
	}
	print unpack("%32C*", $large), "\n"' "$work/some"

compare_if xz 'xz' bash -o pipefail -c 'xz -1 -T2 -c "$1" | xz -dc | cksum' xz "$text"
compare_if xz 'xz, one thread' bash -o pipefail -c 'xz -3 -c "$1" | cksum' xz "$work/some"
compare_if zstd 'zstd' bash -o pipefail -c 'zstd -q -3 -T2 -c "$1" >"$TMPDIR/packed" &&
	cksum <"$TMPDIR/packed" && zstd -dc <"$TMPDIR/packed" | cksum' zstd "$text"
compare_if bzip2 'bzip2' bash -o pipefail -c 'bzip2 -c "$1" | cksum' bzip2 "$work/some"
compare_if tar 'tar' bash -o pipefail -c 'tar -C /usr/include -cf - --sort=name . | cksum'
compare_if sqlite3 'sqlite3' sqlite3 :memory: \
	'CREATE TABLE t (n INTEGER PRIMARY KEY, a, b);
	WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c
		WHERE n < 60000)
	INSERT INTO t SELECT n, n * 7919 % 10007, hex(n * n) FROM c;
	CREATE INDEX i ON t (a, b);
	SELECT a, count(*), max(b) FROM t GROUP BY a ORDER BY 2, 1 LIMIT 50;
	SELECT sum(length(g)) FROM
		(SELECT group_concat(b) AS g FROM t GROUP BY a % 3);'
compare_if sqlite3 'sqlite3, a file' bash -o pipefail -c 'cd "$(mktemp -d)" &&
	sqlite3 db "PRAGMA journal_mode = WAL; PRAGMA mmap_size = 100000000;
	CREATE TABLE t (n INTEGER PRIMARY KEY, b);
	WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c
		WHERE n < 300)
	INSERT INTO t SELECT n, zeroblob(n * 100) || hex(n) FROM c;" &&
	sqlite3 db "UPDATE t SET b = b || b; DELETE FROM t WHERE n % 3 = 0;
	VACUUM; PRAGMA integrity_check; SELECT sum(length(b)) FROM t;" &&
	sqlite3 db .dump | cksum'
compare_if git 'git' bash -o pipefail -c '
	cd "$(mktemp -d)" && git init -q . && cp "$1" file && git add file &&
	export GIT_AUTHOR_DATE="1000000000 +0000" &&
	export GIT_COMMITTER_DATE=$GIT_AUTHOR_DATE &&
	git -c user.name=a -c user.email=b commit -qm one && git status -s &&
	sed -i "s/the/THE/" file && git diff --stat && git log --oneline &&
	git fsck 2>&1 | sort && git gc -q && git cat-file -p HEAD:file | cksum
	' git "$work/some"
compare_if gcc 'gcc' bash -o pipefail -c 'gcc -std=gnu11 -D_GNU_SOURCE= -O2 -pthread \
	-I. -w -c -o - -S tests/programs/forks.c | cksum' gcc
compare_if make 'make' bash -o pipefail -c 'cd "$(mktemp -d)" &&
	for i in 1 2 3 4 5; do echo "int f$i(void) { return $i; }" >$i.c; done
	printf "%s\n" "all: \$(patsubst %.c,%.o,\$(sort \$(wildcard *.c)))" \
		"%.o: %.c; @gcc -c -o \$@ \$< && cksum <\$@" >Makefile && make -s'
compare_if g++ 'g++' bash -o pipefail -c 'printf "%s\n" "#include <map>" \
	"#include <string>" "std::map<std::string, std::string> m;" \
	"int main() { m[\"a\"] = \"b\"; return (int)m.size(); }" |
	g++ -x c++ -O1 -S -o - - | cksum' g++

python='
import hashlib, os, sys
text = open(sys.argv[1], "rb").read()
large = bytearray(text * 4)
print(len(large), hashlib.sha256(large).hexdigest())
words = {}
for w in text.split()[:200000]:
    words[w] = words.get(w, 0) + 1
print(sorted(words.items(), key=lambda p: (-p[1], p[0]))[:20])
for i in range(6):
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        large[i * 1000:i * 1000 + 100] = b"c" * 100
        os.write(w, hashlib.sha256(large).hexdigest().encode())
        os._exit(i)
    large[i * 2000:i * 2000 + 50] = b"p" * 50
    _, status = os.waitpid(pid, 0)
    print(os.read(r, 100).decode(), status >> 8)
    os.close(r), os.close(w)
print(hashlib.sha256(large).hexdigest())
'
compare_if python3 'python3' python3 -c "$python" "$work/some"
compare_if python3 'python3 multiprocessing' python3 -c '
import multiprocessing as mp
def f(i):
    return sum(large[i::7]) + i
large = bytes(range(256)) * 20000
if __name__ == "__main__":
    with mp.get_context("fork").Pool(3) as pool:
        print(pool.map(f, range(20)))
    import subprocess
    print(subprocess.run(["echo", "hello"], capture_output=True).stdout)'
if python3 -c 'import numpy' 2>/dev/null; then
	numpy='
import numpy as np, os
a = np.arange(3_000_000, dtype=np.float64)
b = (a * 3 + 1).reshape(1500, 2000)
pid = os.fork()
if pid == 0:
    b += 1
    os._exit(int(b.sum()) % 100)
b[::7] = 0
print(os.waitpid(pid, 0)[1] >> 8, b.sum(), np.sort(b.ravel())[12345])
c = b.copy(); c[5] = 9
print(c.sum(), b.sum(), np.concatenate([b, c]).shape)'
	compare 'numpy' python3 -c "$numpy"
	also=helper=no compare 'numpy, no thread more' env -u PYTHONWARNINGS \
		OPENBLAS_NUM_THREADS=1 python3 -c "$numpy"
else
	skip 'numpy is not installed'
fi
finish
