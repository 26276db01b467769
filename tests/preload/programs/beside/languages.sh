#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Interpreters and virtual machines: large strings and arrays, sorts, regular expressions, collected
# garbage, and children where the language has fork().
. "$(dirname "$0")/lib.sh"

seq 150000 | awk '{ print $1 * 7919 % 100003, "the line " $1, $1 * $1 % 977 }' >"$work/text"
text=$work/text

cat >"$work/a.rb" <<'END'
text = File.read(ARGV[0])
words = text.scan(/\w+/)
count = Hash.new(0)
words.each { |w| count[w] += 1 }
puts words.size, count.size, count.sort_by { |w, n| [-n, w] }.first(20).inspect
pids = 4.times.map do |i|
  r, w = IO.pipe
  pid = fork { r.close; text[i * 1000, 500] = "x" * 700; w.write text.sum(32).to_s; exit!(i) }
  w.close
  text << "more" * 100_000
  [r.read, Process.wait2(pid)[1].exitstatus]
end
p pids, text.sum(32)
arrays = (1..15).map { |i| Array.new(200_000) { |j| i * j % 1009 } }
GC.start
puts arrays.map(&:sum).inspect
END
beside ruby ruby ruby "$work/a.rb" "$text"

# Arrays of PHP grow by mremap() of what it mapped itself.
cat >"$work/a.php" <<'END'
<?php
for ($k = 0; $k < 8; $k++) {
	$a = range(1, 200000);
	mt_srand($k);
	shuffle($a);
	sort($a);
	$h = md5(serialize($a));
	$n = strlen(str_repeat('x', 3 << 20));
	unset($a);
}
echo $h, $n, "\n";
$text = file_get_contents($argv[1]);
for ($i = 0; $i < 6; $i++) $text .= strrev(substr($text, 0, 1000000));
preg_match_all('/\w+/', $text, $m);
echo count($m[0]), ' ', count(array_count_values($m[0])), ' ', md5($text), "\n";
$s = '';
for ($i = 0; $i < 3000000; $i++) $s .= chr($i % 251);
echo md5($s), ' ', strlen(gzcompress($s)), "\n";
END
beside php php php -d memory_limit=1G "$work/a.php" "$text"

cat >"$work/a.pl" <<'END'
my $text = do { local $/; open my $f, "<", $ARGV[0]; <$f> };
my (%count, @words);
$count{$_}++, push @words, $_ for $text =~ /\w+/g;
print scalar(@words), " ", scalar(keys %count), "\n";
for my $i (1 .. 4) {
	pipe my $r, my $w;
	if (!(my $pid = fork)) {
		substr($text, $i * 1000, 500) = "x" x 700;
		print $w unpack("%32C*", $text), " ", join("", @words[0 .. 99]), "\n";
		close $w;
		exit $i;
	}
	$text .= "more" x 100000;
	close $w;
	print <$r>;
	wait;
	print $? >> 8, "\n";
}
print unpack("%32C*", $text), " @{[(sort keys %count)[0 .. 50]]}\n";
END
beside perl perl perl "$work/a.pl" "$text"

cat >"$work/a.R" <<'END'
suppressMessages(library(parallel))
set.seed(7)
x <- matrix(rnorm(1.5e6), 1500)
y <- mclapply(1:6, function(i) { x[i, ] <- i; c(sum(x), sum(x[, i] > 0)) }, mc.cores = 2)
print(y)
print(sum(crossprod(x[, 1:300])))
d <- data.frame(k = sample(letters, 4e5, TRUE), v = runif(4e5))
print(aggregate(v ~ k, d, mean)[1:5, ])
print(summary(lm(v ~ k, d))$coefficients[1:3, 1:2])
z <- sort(x)
print(z[c(1, 1e5, 1e6)])
s <- paste(rep("text", 2e5), seq_len(2e5), collapse = " ")
print(c(nchar(s), length(strsplit(s, " ")[[1]])))
END
beside R-mclapply Rscript Rscript --vanilla "$work/a.R"

cat >"$work/a.lua" <<'END'
local f = io.open(arg[1]); local text = f:read('a' == 'a' and '*a'); f:close()
local n, count, parts = 0, {}, {}
for w in text:gmatch('%w+') do count[w] = (count[w] or 0) + 1; n = n + 1 end
for i = 1, 300000 do parts[#parts + 1] = i * 7919 % 100003 .. ',' end
table.sort(parts)
local s = table.concat(parts)
for i = 1, 20 do s = s:sub(1, 2000000) .. string.rep('x', 100000 + i) end
local sum = 0
for i = 1, #s, 97 do sum = sum + s:byte(i) end
print(n, #s, sum, parts[777], count['the'])
local t = {}
for i = 1, 3000000 do t[i] = i % 1009 end
local all = 0
for i = 1, #t do all = all + t[i] end
print(all)
END
beside lua lua5.4 lua5.4 "$work/a.lua" "$text"
beside luajit luajit luajit "$work/a.lua" "$text"

cat >"$work/a.tcl" <<'END'
set f [open [lindex $argv 0]]; set text [read $f]; close $f
foreach w [split $text] { incr count($w) }
puts "[string length $text] [array size count] $count(the)"
set l {}
for {set i 0} {$i < 400000} {incr i} { lappend l [expr {$i * 7919 % 100003}] }
puts [lrange [lsort -integer $l] 1000 1010]
set s [string repeat $text 8]
puts "[string length $s] [regexp -all {e \d} $s] [string range [string reverse $s] 100 140]"
END
beside tcl tclsh tclsh "$work/a.tcl" "$text"

cat >"$work/a.scm" <<'END'
(use-modules (ice-9 rdelim) (srfi srfi-1) (rnrs bytevectors))
(define v (make-vector 600000 0))
(do ((i 0 (+ i 1))) ((= i 600000)) (vector-set! v i (modulo (* i 7919) 100003)))
(define s (sort (vector->list v) <))
(display (list-ref s 12345)) (newline)
(define b (make-bytevector 20000000 7))
(do ((i 0 (+ i 4096))) ((>= i 20000000)) (bytevector-u8-set! b i (modulo i 251)))
(display (fold + 0 (map (lambda (i) (bytevector-u8-ref b (* i 4096))) (iota 4000)))) (newline)
(define p (primitive-fork))
(if (zero? p) (begin (bytevector-u8-set! b 5 99) (primitive-exit (bytevector-u8-ref b 5))))
(display (status:exit-val (cdr (waitpid p)))) (display (bytevector-u8-ref b 5)) (newline)
END
beside guile guile guile --no-auto-compile "$work/a.scm"

# N: how much
lisp() { sed "s/\*n\*/$1/" "$work/a.lisp" >"$work/$1.lisp"; }
cat >"$work/a.lisp" <<'END'
(let ((v (make-array *n*)) (h (make-hash-table)))
  (dotimes (i (length v)) (setf (aref v i) (mod (* i 7919) 100003)))
  (loop for x across v do (incf (gethash x h 0)))
  (format t "~a ~a~%" (hash-table-count h) (aref (sort v #'<) 12345))
  (let ((s (make-string 2000000 :initial-element #\a)))
    (dotimes (i 20) (setf s (concatenate 'string (subseq s 0 1000000) (subseq s 5 999999))))
    (format t "~a~%" (length s)))
  (let ((l nil)) (dotimes (i (floor *n* 3)) (push (list i (* i 1.5)) l))
    (format t "~a~%" (reduce #'+ (mapcar #'first l)))))
END
lisp 3000000
lisp 500000
lisp 150000
beside sbcl sbcl sbcl --script "$work/3000000.lisp"
beside clisp clisp clisp -q -norc "$work/150000.lisp"
beside ecl ecl ecl --norc --shell "$work/500000.lisp"

cat >"$work/a.erl" <<'END'
-module(a).
-export([main/0]).
work(N) ->
	L = [I * 7919 rem 100003 || I <- lists:seq(1, N)],
	B = << <<X:32>> || X <- lists:sort(L) >>,
	C = binary:copy(B, 8),
	{N, erlang:crc32(C), byte_size(zlib:compress(C))}.
main() ->
	Me = self(),
	Pids = [spawn(fun() -> Me ! {self(), work(60000 + I)} end) || I <- lists:seq(1, 8)],
	[receive {P, R} -> io:format("~p~n", [R]) end || P <- Pids],
	T = ets:new(t, [ordered_set]),
	[ets:insert(T, {I, I * I}) || I <- lists:seq(1, 400000)],
	io:format("~p ~p~n", [ets:info(T, size), ets:lookup(T, 777)]),
	io:format("~s", [os:cmd("echo a child")]),
	halt(3).
END
story() {
	cp "$work/a.erl" "$work/story" && cd "$work/story" || return
	"$@" erlc a.erl
	"$@" erl -noshell -s a main
	echo "$?"
}
tell erlang 'erl erlc'

cat >"$work/a.m" <<'END'
rand("seed", 3); A = reshape(mod((1:1e6) * 7919, 1009), 1000, 1000) / 1009;
printf("%.6f\n", trace(A * A')); [q, r] = qr(A(1:300, 1:300)); printf("%.6f\n", norm(q * r - A(1:300, 1:300)) < 1e-9);
x = zeros(1, 4e6); x(1:7:end) = 3; printf("%d\n", sum(cumsum(x) > 1000));
s = repmat("text ", 1, 4e5); printf("%d %d\n", length(s), length(strsplit(s(1:50000), " ")));
f = fft(A(:)); printf("%.3f\n", abs(f(5))); c = cell(1, 5e4); for i = 1:5e4, c{i} = i * 2; end
printf("%d\n", sum([c{:}]));
END
beside octave octave-cli octave-cli --norc -q "$work/a.m"

cat >"$work/a.prolog" <<'END'
:- initialization(main).
n(0, L, L) :- !.
n(N, A, L) :- X is N * 7919 mod 100003, M is N - 1, n(M, [X-N|A], L).
main :- n(400000, [], L), msort(L, S), nth0(777, S, E), print(E), nl,
	findall(X, (member(X-_, S), X mod 3 =:= 0), Xs), length(Xs, Len), sum_list(Xs, Sum), print(Len/Sum), nl,
	numlist(1, 300000, Ns), atomic_list_concat(Ns, ',', At), atom_length(At, AL), print(AL), nl, halt.
END
beside swipl swipl swipl -q "$work/a.prolog"

cat >"$work/a.gap" <<'END'
g := Group((1,2,3,4,5,6,7,8,9,10,11),(3,7,11,8)(4,10,5,6));; Print(Size(g), "\n");
l := List([1..1000000], i -> i * 7919 mod 100003);; Sort(l);; Print(l[12345], "\n");
m := List([1..150], i -> List([1..150], j -> (i * j) mod 101));; Print(RankMat(m * Z(101)^0), " ", Factorial(3000) mod 1000003, "\n");
s := Concatenation(List([1..200000], String));; Print(Length(s), "\n"); QUIT_GAP(0);
END
beside gap gap bash -c 'gap -q -A -b <"$1"' gap "$work/a.gap"
cat >"$work/a.gp" <<'END'
default(parisizemax, 400000000);
print(#Str(2^2000000)); v = vector(10^6, i, i * 7919 % 100003); print(vecsort(v)[12345]);
print(factor(2^137 - 1)); print(matdet(matrix(150, 150, i, j, i^2 + (i * j) % 17)) % 10^9);
END
beside pari gp gp -q -f "$work/a.gp"

cat >"$work/a.rkt" <<'END'
#lang racket/base
(require racket/list)
(define v (build-vector 1500000 (lambda (i) (modulo (* i 7919) 100003))))
(displayln (list-ref (sort (vector->list v) <) 12345))
(define b (make-bytes 30000000 7))
(for ([i (in-range 0 30000000 4096)]) (bytes-set! b i (modulo i 251)))
(displayln (for/sum ([x (in-bytes (subbytes b 0 3000000))]) x))
(displayln (string-length (apply string-append (build-list 300000 number->string))))
END
beside racket racket racket "$work/a.rkt"

cat >"$work/a.js" <<'END'
var print = typeof console === 'object' ? console.log : print;
var a = [], i, s = '', h = 0;
for (i = 0; i < 700000; i++) a.push({ k: i * 7919 % 100003, v: 'text ' + i });
a.sort(function (x, y) { return x.k - y.k || (x.v < y.v ? -1 : 1); });
for (i = 0; i < 300000; i++) s += a[i].v;
for (i = 0; i < s.length; i += 31) h = (h * 31 + s.charCodeAt(i)) % 1000003;
var b = new Uint8Array(40 << 20);
for (i = 0; i < b.length; i += 509) b[i] = i;
for (i = 0; i < b.length; i += 4096) h = (h + b[i]) % 1000003;
print(a[777].v + ' ' + s.length + ' ' + h);
END
beside node node node "$work/a.js"
beside duktape duk bash -c 'sed "s/700000/60000/; s/300000/60000/" "$1" >"$TMPDIR/d.js" && duk "$TMPDIR/d.js"' duk "$work/a.js"

cat >"$work/a.py" <<'END'
import hashlib, os, sys
text = open(sys.argv[1], "rb").read() * 4
words = {}
for w in text.split(): words[w] = words.get(w, 0) + 1
print(len(words), sorted(words.items(), key=lambda p: (-p[1], p[0]))[:10])
large = bytearray(text)
for i in range(4):
    r, w = os.pipe()
    if (pid := os.fork()) == 0:
        large[i * 1000:i * 1000 + 100] = b"c" * 100
        os.write(w, hashlib.sha256(large).hexdigest().encode())
        os._exit(i)
    large[i * 2000:i * 2000 + 50] = b"p" * 50
    print(os.waitpid(pid, 0)[1] >> 8, os.read(r, 100).decode())
lists = [[i * j % 1009 for j in range(100_000)] for i in range(20)]
print(sum(map(sum, lists)), hashlib.sha256(large).hexdigest())
END
beside python3 python3 python3 "$work/a.py" "$text"

mkdir "$work/j"
cat >"$work/j/A.java" <<'END'
import java.util.*;
public class A {
	public static void main(String[] x) throws Exception {
		Map<Integer, List<String>> m = new TreeMap<>();
		for (int i = 0; i < 600000; i++)
			m.computeIfAbsent(i * 7919 % 1009, k -> new ArrayList<>()).add("text " + i);
		StringBuilder s = new StringBuilder();
		for (List<String> l : m.values()) { Collections.sort(l); s.append(l.get(l.size() / 2)); }
		java.nio.ByteBuffer b = java.nio.ByteBuffer.allocateDirect(60 << 20);
		long h = 0;
		for (int i = 0; i < b.capacity() - 8; i += 512) { b.putLong(i, i * 31L); h += b.getLong(i / 2 & ~7); }
		Process p = new ProcessBuilder("echo", "a child").start();
		System.out.println(s.length() + " " + h + " " + new String(p.getInputStream().readAllBytes()).trim());
	}
}
END
if command -v javac >/dev/null; then javac -d "$work/j" "$work/j/A.java"; fi
beside java javac java -Xmx256m -cp "$work/j" A
finish
