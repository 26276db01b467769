#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Compilers, linkers, solvers, compressors and other tools of programmers.
. "$(dirname "$0")/lib.sh"

for ((i = 0; i < 6; i++)); do cat /usr/include/*.h /usr/share/common-licenses/* 2>/dev/null; done |
	awk '{ print NR % 9973, $0, NR * 7919 % 100003 }' | head -c 12000000 >"$work/text"
text=$work/text

# ---- Compilers ----
awk 'BEGIN { print "#include <map>\n#include <string>\n#include <vector>"
	for (i = 0; i < 20; i++) print "struct s" i " { int a[" i + 1 "]; }; std::map<int, std::vector<s" i ">> m" i \
		"; int f" i "(int x) { m" i "[x].push_back({}); return (int)m" i ".size() + x * " i "; }"
	print "int main() { int s = 0;"; for (i = 0; i < 20; i++) print "s += f" i "(s);"
	print "return std::to_string(s).size() > 1 ? 3 : 4; }" }' >"$work/a.cc"
# COMPILER...: the object's bytes, and what the program says
story_of_c() {
	story() {
		"$@" "${command[@]}" -o "$work/story/a" "$work/a.cc" && cksum <"$work/story/a" && "$work/story/a"
		echo "status $?"
	}
}
story_of_c
command=(g++ -O1 -x c++) && tell g++ g++
command=(clang++ -O1) && tell clang++ clang++
command=(clang++ -O1 -fuse-ld=lld -flto -Wl,--threads=2) && tell clang++-lld 'clang++ ld.lld'

cat >"$work/a.f90" <<'END'
program a
  integer, parameter :: n = 600
  real(8), allocatable :: x(:,:), y(:,:)
  integer :: i, j
  allocate(x(n, n), y(n, n))
  do j = 1, n; do i = 1, n; x(i, j) = mod(i * 7919 + j, 1009); end do; end do
  do i = 1, 12; y = matmul(x, transpose(x)); x = mod(y, 1009.0d0); end do
  print *, nint(sum(x))
end program
END
if command -v gfortran >/dev/null; then gfortran -O2 -o "$work/fortran" "$work/a.f90"; fi
beside gfortran gfortran bash -c 'gfortran -O2 -o "$TMPDIR/f" "$1" && cksum <"$TMPDIR/f"' fortran "$work/a.f90"
beside fortran-matmul gfortran "$work/fortran"

cat >"$work/a.go" <<'END'
package main

import (
	"fmt"
	"os/exec"
	"sort"
	"strings"
)

func main() {
	c := make(chan int)
	for i := 0; i < 8; i++ {
		go func(i int) {
			a := make([]int, 400000)
			for j := range a {
				a[j] = j * 7919 % 100003 * i
			}
			sort.Ints(a)
			c <- a[777] + len(strings.Repeat("x", i<<20))
		}(i)
	}
	s := 0
	for i := 0; i < 8; i++ {
		s += <-c
	}
	o, _ := exec.Command("echo", "a child").Output()
	fmt.Println(s, string(o))
}
END
export GOCACHE=$work/go GO111MODULE=off GOPATH=$work/gopath GOFLAGS=-p=2
! command -v go >/dev/null || go build -o "$work/go.a" "$work/a.go" # its library is built once
story() {
	"$@" go build -o "$work/story/a" "$work/a.go" && cksum <"$work/story/a" && "$@" "$work/story/a"
}
tell go go

cat >"$work/a.rs" <<'END'
use std::collections::HashMap;
fn main() {
    let mut m: HashMap<u64, Vec<String>> = HashMap::new();
    for i in 0..800_000u64 { m.entry(i * 7919 % 10007).or_default().push(format!("text {i}")); }
    let t: Vec<_> = (0..4u64).map(|k| std::thread::spawn(move || {
        let mut v: Vec<u64> = (0..2_000_000).map(|i| i * (7919 + k) % 1_000_003).collect();
        v.sort(); v[12345] })).collect();
    let s: Vec<u64> = t.into_iter().map(|t| t.join().unwrap()).collect();
    println!("{} {} {:?}", m.len(), m[&77].concat().len(), s);
}
END
# rustup's proxy looks for its tools in the home of the user that runs the tests.
export RUSTUP_HOME=${RUSTUP_HOME:-~root/.rustup} CARGO_HOME=${CARGO_HOME:-~root/.cargo}
story() {
	"$@" rustc -O -o "$work/story/a" "$work/a.rs" && cksum <"$work/story/a" && "$@" "$work/story/a"
}
tell rustc rustc

cat >"$work/A.hs" <<'END'
import qualified Data.Map.Strict as M
import Data.List (sort)
main = do
  let xs = [i * 7919 `mod` 100003 | i <- [1 .. 300000 :: Int]]
  print (sort xs !! 777)
  print (M.size (M.fromListWith (+) (zip xs xs)))
END
story() {
	"$@" ghc -v0 -O0 -outputdir "$work/story" -o "$work/story/a" "$work/A.hs" && "$@" "$work/story/a"
}
tell ghc ghc

cat >"$work/a.ml" <<'END'
let () =
  let h = Hashtbl.create 1000 in
  for i = 1 to 300_000 do Hashtbl.replace h (i * 7919 mod 300007) (string_of_int i) done;
  let a = Array.init 700_000 (fun i -> i * 7919 mod 1_000_003) in
  Array.sort compare a;
  let b = Buffer.create 10 in
  Hashtbl.iter (fun k _ -> Buffer.add_string b (string_of_int k)) h;
  Printf.printf "%d %d %d\n" (Hashtbl.length h) a.(12345) (Buffer.length b)
END
beside ocaml ocaml ocaml "$work/a.ml"
if command -v ocamlfind >/dev/null || command -v ocamlopt >/dev/null; then
	(cd "$work" && ocamlopt -o "$work/ml" a.ml 2>/dev/null)
fi
[ ! -x "$work/ml" ] || beside ocamlopt ocamlopt "$work/ml"

printf '%s\n' 'program a;' 'var x: array of longint; i, j: longint; s: ansistring;' 'begin' \
	'for j := 1 to 60 do begin setlength(x, j * 200000); for i := 0 to high(x) do x[i] := (i * j) mod 1009; end;' \
	's := ""; for i := 1 to 2000000 do s := s + chr(65 + i mod 26); writeln(length(s), x[12345]); end.' |
	sed "s/\"/'/g" >"$work/a.pas"
story() { "$@" fpc -v0 -O2 -o"$work/story/a" "$work/a.pas" | tail -n +3 | sed 's/[0-9.]* sec.*//' && "$@" "$work/story/a"; }
tell fpc fpc
awk 'BEGIN { print "section .data"; for (i = 0; i < 200000; i++) print "l" i ": dd " i ", l" int(i * 7919 % 200000) }' >"$work/a.asm"
beside nasm nasm bash -c 'nasm -f elf64 -o "$TMPDIR/o" "$1" && cksum <"$TMPDIR/o"' nasm "$work/a.asm"
awk 'BEGIN { print "class A {"; for (i = 0; i < 300; i++) print "static int f" i "(int x) { java.util.List<Integer> l = new" \
	" java.util.ArrayList<>(); l.add(x); return l.stream().mapToInt(y -> y * " i ").sum(); }"; print "}" }' >"$work/A.java"
beside javac javac bash -c 'javac -d "$TMPDIR/j" "$1" && cksum <"$TMPDIR/j/A.class"' javac "$work/A.java"
cat >"$work/a.fs" <<'END'
20000000 constant n  n allocate throw constant a  a n 1 fill
: sieve 4472 2 do a i + c@ if n i dup * do 0 a i + c! j +loop then loop ;
: sum 0 n 2 do a i + c@ + loop ;
sieve sum . cr bye
END
beside gforth gforth gforth "$work/a.fs"

# ---- Git, build tools, debuggers ----
git_story() {
	cd "$work/story" && git init -q . 2>/dev/null && git config pack.threads 2 || return
	local i
	for i in 1 2; do
		sed "${i}~997s/e/$i/g" "$text" | split -b 1M - file
		git add . && git -c user.name=a -c user.email=b commit -qm "$i" || return
	done
	"$@" git gc -q --aggressive && "$@" git fsck --full 2>&1 | sort
	"$@" git log --stat --oneline -p | cksum
	git rev-parse HEAD
}
story() {
	export GIT_AUTHOR_DATE='1000000000 +0000' GIT_COMMITTER_DATE='1000000000 +0000' GIT_CONFIG_NOSYSTEM=1
	git_story "$@"
}
tell git-gc git
story() {
	cd "$work/story" && "$@" hg init -q . && cp "$text" f && "$@" hg add -q f &&
		"$@" hg commit -q -u a -d '0 0' -m 1 && sed -i '3~99s/e/E/' f && "$@" hg commit -q -u a -d '0 0' -m 2 &&
		"$@" hg log -p | cksum && "$@" hg verify -q
}
tell mercurial hg
story() {
	cd "$work/story" && svnadmin create r && mkdir d && cp "$text" d/f &&
		"$@" svn import -q -m 1 d "file://$PWD/r" && "$@" svn checkout -q "file://$PWD/r" w && sed -i '3~99s/e/E/' w/f &&
		"$@" svn diff w/f | cksum && "$@" svn commit -q -m 2 w && "$@" svn cat w/f | cksum && "$@" svnadmin verify -q r
}
tell subversion 'svn svnadmin'
beside ctags ctags bash -c 'ctags -f - --sort=yes -R /usr/include/*.h /usr/include/c++ 2>&1 | cksum'
printf '%s\n' "INPUT = $root/core $root/memfd" 'RECURSIVE = YES' 'EXTRACT_ALL = YES' 'GENERATE_LATEX = NO' 'QUIET = YES' \
	'WARNINGS = NO' 'HAVE_DOT = NO' 'HTML_TIMESTAMP = NO' 'NUM_PROC_THREADS = 1' >"$work/Doxyfile"
story() {
	cd "$work/story" && "$@" doxygen "$work/Doxyfile" >log 2>&1 && find html -name '*.html' | sort | xargs cat | cksum
}
tell doxygen doxygen
g++ -g -O0 -o "$work/debugged" "$work/a.cc" 2>/dev/null
beside gdb gdb bash -c 'gdb -nx -q -batch -ex "break f7" -ex run -ex backtrace -ex "print x" -ex "info types s7" \
	-ex finish -ex kill "$1" | sed "s/process [0-9]*/process/"' gdb "$work/debugged"

# ---- Compressors and copies ----
beside 7z 7z bash -c '7z a -mmt=2 -mx=3 -bd "$TMPDIR/a.7z" "$1" >/dev/null && 7z e -so "$TMPDIR/a.7z" 2>/dev/null | cksum
	rm -f "$TMPDIR/a.7z"' 7z "$text"
beside pigz pigz bash -c 'pigz -p 3 -9 -c "$1" | tee >(cksum >&2) | pigz -dc | cksum' pigz "$text"
beside lz4 lz4 bash -c 'lz4 -9 -c "$1" | tee >(cksum >&2) | lz4 -dc | cksum' lz4 "$text"
beside xz xz bash -c 'xz -T2 -4 --block-size=3MiB -c "$1" | tee >(cksum >&2) | xz -T2 -dc | cksum' xz "$text"
beside zstd zstd bash -c 'zstd -q -T2 -12 -c "$1" | tee >(cksum >&2) | zstd -qdc | cksum' zstd "$text"
story() {
	mkdir "$work/story/a" && split -b 100K "$text" "$work/story/a/" && "$@" rsync -a "$work/story/a/" "$work/story/b" &&
		cp "$text" "$work/story/one" && sed '5~99s/e/E/' "$text" >"$work/story/two" &&
		"$@" rsync -I --no-whole-file --stats "$work/story/two" "$work/story/one" | grep -E 'Matched|Literal' &&
		diff -r "$work/story/a" "$work/story/b" && cmp "$work/story/one" "$work/story/two"
}
tell rsync rsync
beside parallel parallel bash -c 'parallel --will-cite --pipepart -a "$1" --block 1M -j 3 -k cksum &&
	seq 60 | parallel --will-cite -j 4 -k "echo {} \$(({} * {}))"' parallel "$text"
beside sort sort bash -c 'sort -S 200M --parallel=2 "$1" | cksum' sort "$text"

# ---- Data and solvers ----
awk 'BEGIN { printf "["; for (i = 0; i < 200000; i++) printf "%s{\"k\":%d,\"v\":\"text %d\"}", i ? "," : "", i * 7919 % 1009, i; print "]" }' \
	>"$work/a.json"
beside jq jq jq -c 'group_by(.k) | map({k: .[0].k, n: length, v: (map(.v) | join(",") | length)}) | .[0:40]' "$work/a.json"
awk 'BEGIN { print "<r>"; for (i = 0; i < 200000; i++) print "<i k=\"" i * 7919 % 1009 "\">text " i "</i>"; print "</r>" }' >"$work/a.xml"
cat >"$work/a.xsl" <<'END'
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform"><xsl:output method="text"/>
<xsl:key name="k" match="i" use="@k"/>
<xsl:template match="/"><xsl:for-each select="//i[count(. | key('k', @k)[1]) = 1]"><xsl:sort select="@k"/>
<xsl:value-of select="concat(@k, ' ', count(key('k', @k)), ' ', ., '&#10;')"/></xsl:for-each></xsl:template>
</xsl:stylesheet>
END
beside xsltproc xsltproc xsltproc "$work/a.xsl" "$work/a.xml"
beside xmllint xmllint bash -c 'xmllint --format --xpath "//i[@k = 77]" "$1" | cksum; xmllint --c14n "$1" | cksum' xmllint "$work/a.xml"
beside sqlite3 sqlite3 sqlite3 :memory: 'CREATE TABLE t (n INTEGER PRIMARY KEY, a, b);
	WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 400000)
	INSERT INTO t SELECT n, n * 7919 % 10007, hex(n * n) FROM c; CREATE INDEX i ON t (a, b);
	SELECT a, count(*), max(b) FROM t GROUP BY a ORDER BY 2, 1 LIMIT 50;
	SELECT sum(length(g)) FROM (SELECT group_concat(b) AS g FROM t GROUP BY a % 3);'
awk 'BEGIN { print "(declare-const s Int)"; for (i = 0; i < 24; i++) print "(declare-const x" i " Int)(assert (and (> x" i " " i ") (< x" i " 99)))"
	for (i = 1; i < 24; i++) print "(assert (distinct x" i - 1 " x" i "))(assert (= (mod (+ x" i - 1 " x" i ") 7) " i % 7 "))"
	print "(check-sat)" }' >"$work/a.smt"
beside z3 z3 z3 "$work/a.smt"
cat >"$work/a.mod" <<'END'
set I := 1..60; set J := 1..40; param c{i in I, j in J} := (i * 7919 + j * 104729) mod 97 + 1;
var x{I, J} binary; minimize z: sum{i in I, j in J} c[i, j] * x[i, j];
s.t. a{i in I}: sum{j in J} x[i, j] = 1; s.t. b{j in J}: sum{i in I} x[i, j] <= 2; solve; printf "%g\n", z; end;
END
beside glpsol glpsol bash -c 'glpsol --math "$1" | grep -vE "Time|Memory|mem"' glpsol "$work/a.mod"
beside pandoc pandoc bash -c 'cat "$1"/docs/*.md | head -n 900 | pandoc -f gfm -t html --no-highlight | cksum' pandoc "$root"
awk 'BEGIN { print "digraph {"; for (i = 0; i < 300; i++) print i, "->", int(i / 2), ";", i, "->", i * 7919 % 300, ";"; print "}" }' >"$work/a.dot"
beside graphviz dot bash -c 'sed "/\* 7919/d" "$1" | head -n 250 | sed "\$a}" | dot -Tsvg | cksum' dot "$work/a.dot"

# ---- MPI ----
cat >"$work/mpi.c" <<'END'
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
	int rank, size, n = 1 << 20;
	double *a = malloc(n * sizeof(*a)), *b = malloc(n * sizeof(*b)), s = 0;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	for (int turn = 0; turn < 12; turn++) {
		for (int i = 0; i < n; i++)
			a[i] = (i * 31 + rank * 7 + turn) % 1009;
		MPI_Allreduce(a, b, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
		MPI_Sendrecv(b, n / 2, MPI_DOUBLE, (rank + 1) % size, 1, a, n / 2, MPI_DOUBLE, (rank + size - 1) % size, 1,
			MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		for (int i = 0; i < n / 2; i++)
			s += a[i];
	}
	MPI_Reduce(&s, b, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
	if (rank == 0)
		printf("%d ranks: %.0f\n", size, b[0]);
	return MPI_Finalize();
}
END
mpi=(--allow-run-as-root --oversubscribe -n 3 --mca btl_base_warn_component_unused 0)
if command -v mpicc >/dev/null; then mpicc -O2 -o "$work/mpi" "$work/mpi.c"; fi
beside openmpi 'mpicc mpirun' mpirun "${mpi[@]}" --mca btl self,vader "$work/mpi"
beside openmpi-tcp 'mpicc mpirun' mpirun "${mpi[@]}" --mca btl self,tcp --mca btl_tcp_if_include lo "$work/mpi"
finish
