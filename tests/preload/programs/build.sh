#!/bin/bash
# SPDX-License-Identifier: MIT
#
# A build: this project with make and gcc under the shim. The objects are the
# same byte by byte, and so is what a C++ compiler makes of large headers.
. "$(dirname "$0")/lib.sh"

# make comes from inside a make here; its variables are not for ours.
unset MAKEFLAGS MAKELEVEL MFLAGS
mkdir "$work/tree"
cp -r Makefile mk memfd quiet core share tensor cuda preload cli include scripts "$work/tree"

# Debug information names the folder, so that it is always the same one.
must_succeed=1 compare_if gcc 'this project' bash -c 'cd "$1" && rm -rf build &&
	make -s -j2 NVCC= MODE=plain B=build/plain build/plain/lib/libcowshed.a \
	build/plain/lib/libcowshed-preload.so build/plain/bin/cowshed 2>&1 &&
	find build -name "*.[oa]" -o -name "*.so*" -o -path "*/bin/*" | sort |
	xargs cksum' make "$work/tree"
must_succeed=1 compare_if gcc 'this project at -O3, linked at once' bash -c 'cd "$1" &&
	gcc -std=gnu11 -D_GNU_SOURCE= -O3 -flto=2 -I. -Iinclude -pthread -fPIC -shared \
	-frandom-seed=1 -w -o all.so memfd/*.c quiet/*.c core/*.c core/*/*.c && nm all.so | cut -c17- |
	sed "s/\.[0-9]*$//" | sort | cksum' gcc "$work/tree"

{
	printf '#include <%s>\n' algorithm any atomic bitset chrono deque filesystem \
		functional future iostream map memory optional random regex \
		set sstream string thread tuple unordered_map variant vector
	printf '%s\n' 'template <int n> struct many {' \
		'std::map<std::string, std::vector<int>> m[n % 3 + 1];' \
		'std::regex r{"a(b|c)*d"};' \
		'int f(const std::string &s) { many<n - 1> next;' \
		'for (auto &x : m) x[s].push_back(n);' \
		'return std::regex_match(s, r) + next.f(s); } };' \
		'template <> struct many<0> { int f(const std::string &s) {' \
		'return (int)s.size(); } };' \
		'int main() { many<60> m; return m.f("abc"); }'
} >"$work/large.cc"
compare_if g++ 'g++' bash -c 'g++ -std=c++17 -g -O2 -frandom-seed=1 -c -o "$1.o" \
	"$1" && cksum <"$1.o" && g++ -o "$1.out" "$1.o" -pthread &&
	"$1.out"; echo "ended with $?"' \
	g++ "$work/large.cc"
compare_if g++ 'g++, precompiled' bash -c 'cd "$(dirname "$1")" &&
	grep "^#" "$1" >all.h && g++ -std=c++17 -x c++-header all.h -o all.h.gch &&
	echo "int main() { return (int)std::string(\"abc\").size(); }" |
	g++ -std=c++17 -include ./all.h -x c++ -O1 -c -o pch.o - && cksum <pch.o
	rm -f all.h.gch' g++ "$work/large.cc"
finish
