# SPDX-License-Identifier: MIT
#
# Real programs on real files (sourced by instructions.sh, programs.sh, thp.sh)
#
# programs_prepare DIR TEXT-MB ARRAY-MB ROWS makes the inputs from files of this system: text
# below /usr/share/doc, /usr/include and similar folders; the table of all files below /usr and
# /etc. An array of NumPy has the libraries of /usr/lib, and gcc compiles this project.
# program_command NAME prints a line for sh that runs the program there.
# program_missing NAME prints why the program can't run, or nothing. All results go to
# standard output, so that no page of an output file counts as memory.

programs_small='python perl gcc git node sqlite' # programs with small objects
programs_sources="'$root'/core/*.c '$root'/memfd/*.c '$root'/quiet/*.c"

program_missing() {
	case $1 in
	numpy) [ -n "$(python_with numpy)" ] || echo 'no python3 with numpy' ;;
	python) have python3 || echo 'no python3' ;;
	sqlite) have sqlite3 || echo 'no sqlite3' ;;
	gcc)
		have gcc || { echo 'no gcc'; return; }
		set -- "$root"/core/*.c
		[ -e "$1" ] || echo 'no sources' ;;
	*) have "$1" || echo "no $1" ;;
	esac
}

# Names of text files of the system, in a fixed order.
programs_text_files() {
	find /usr/share/doc /usr/include /usr/share/dict /usr/share/perl* \
		/usr/share/common-licenses /usr/lib/python3* /usr/lib/gcc \
		-type f -size +1k -size -8192k \( -name '*.h' -o \
		-name '*.txt' -o -name '*.py' -o -name '*.pm' -o \
		-name 'copyright' -o -name '*.html' -o -name 'README*' -o \
		-name '*.md' -o -name 'words' -o -name 'GPL*' \) -print \
		2>/dev/null | sort | head -n 20000
}

# The files below some folders of the system, as a table.
programs_rows() {
	printf 'path,kind,bytes,mode,changed,depth\n'
	find /usr /etc /var/lib /opt -xdev \
		-printf '%p,%y,%s,%m,%Ts,%d\n' 2>/dev/null |
		awk -F, 'NF == 6 && !/"/' | head -n "$1"
}

programs_prepare() {
	programs_array=$3
	programs_text_files | tr '\n' '\0' | xargs -0 cat 2>/dev/null |
		head -c "$(($2 * 1048576))" >"$1/corpus"
	# If the system has too little text, the same text is read again; line
	# numbers make the lines differ.
	while [ -s "$1/corpus" ] && cat "$1/corpus"; do
		:
	done 2>/dev/null | awk '{ print $0, NR }' 2>/dev/null |
		head -c "$(($2 * 1048576))" >"$1/text"
	rm -f "$1/corpus"
	head -c "$(($2 * 1048576 / 6))" "$1/text" >"$1/part"
	programs_rows "$4" >"$1/files.csv"
	cat >"$1/load.sql" <<-'SQL'
	PRAGMA cache_size = -400000;
	PRAGMA temp_store = MEMORY;
	.mode csv
	.import files.csv files
	CREATE INDEX by_bytes ON files (CAST(bytes AS INTEGER));
	CREATE INDEX by_path ON files (path, kind);
	SELECT kind, count(*), sum(bytes), max(CAST(bytes AS INTEGER))
		FROM files GROUP BY kind ORDER BY kind;
	SELECT depth, mode, count(*), total(bytes) FROM files
		GROUP BY depth, mode ORDER BY 3 DESC, 1, 2 LIMIT 40;
	SELECT a.path, b.path, a.bytes FROM files a JOIN files b
		ON CAST(a.bytes AS INTEGER) = CAST(b.bytes AS INTEGER)
		AND a.path < b.path AND a.kind = 'f' AND b.kind = 'f'
		WHERE CAST(a.bytes AS INTEGER) > 100000
		ORDER BY CAST(a.bytes AS INTEGER) DESC, 1, 2 LIMIT 200;
	SELECT path, length(path), row_number() OVER (PARTITION BY kind
		ORDER BY CAST(changed AS INTEGER), path) AS turn
		FROM files ORDER BY substr(path, -7), path LIMIT 2000;
	SELECT count(*), count(DISTINCT substr(path, 1, 24)),
		length(group_concat(path)) FROM files;
	SQL
}

program_command() {
	case $1 in
	numpy)
		# Not a wrapper, which would be a process more.
		programs_python=$("$(python_with numpy)" -c 'import sys; print(sys.executable)')
		echo "exec '$programs_python' '$here/programs_forked.py' $programs_array" ;;
	sort)
		echo 'LC_ALL=C exec sort --parallel=2 -S 1G -k 2 text' ;;
	xz)
		echo 'exec xz -T2 -3 -c part' ;;
	sqlite)
		echo 'exec sqlite3 :memory: <load.sql' ;;
	python)
		echo "exec python3 -c 'import collections, json, re
text = open(\"part\", encoding=\"latin-1\").read(3000000)
words = collections.Counter(re.findall(r\"[a-z]+\", text.lower()))
index = {}
for n, line in enumerate(text.splitlines()):
    for word in set(line.split()):
        index.setdefault(word, []).append(n)
again = json.loads(json.dumps(index))
print(len(words), sum(map(len, again.values())))'" ;;
	perl)
		echo "exec perl -e 'open my \$f, \"<\", \"part\"; my %n;
while (<\$f>) { \$n{\$_}++ for split } my \$s = 0;
for (sort { \$n{\$b} <=> \$n{\$a} || \$a cmp \$b } keys %n) {
\$s = (\$s * 31 + \$n{\$_} + length) % 1000003 } print \"\$s\n\"'" ;;
	git)
		echo 'rm -rf repo && mkdir repo && cd repo && git init -q . &&
cp ../part file && git add file && export GIT_AUTHOR_DATE=2001-01-01T00:00:00Z GIT_COMMITTER_DATE=2001-01-01T00:00:00Z &&
git -c user.name=a -c user.email=b commit -qm one &&
awk "NR % 7" ../part >file && git diff --stat && git add file &&
git -c user.name=a -c user.email=b commit -qm two &&
git log --stat --oneline && git gc -q && git cat-file -p HEAD:file | cksum' ;;
	node)
		echo "exec node -e 'const t = require(\"fs\").readFileSync(\"part\", \"utf8\");
const n = new Map(); for (const w of t.split(/\\s+/)) n.set(w, (n.get(w) || 0) + 1);
const a = [...n].sort((x, y) => y[1] - x[1] || (x[0] < y[0] ? -1 : 1));
const b = JSON.parse(JSON.stringify(a.slice(0, 200000)));
console.log(a.length, b.length, a[0][1])'" ;;
	gcc)
		echo "for f in $programs_sources; do" \
			"gcc -std=gnu11 -D_GNU_SOURCE= -O2 -w -fPIC -I'$root'" \
			"-I'$root/include' -S -o - \"\$f\" || exit 1; done" ;;
	esac
}

# large_command NAME: of a program of bench/large.py, of the size $scale, or of sort or xz
large_command() {
	case $1 in
	sort | xz)
		program_command "$1"
		return ;;
	joins | groups) module=pandas ;;
	images) module=PIL ;;
	audio) module=scipy ;;
	training | inference) module=torch ;;
	*) module=numpy ;;
	esac
	large_python=$(python_with numpy,$module)
	echo "exec '${large_python:-false}' '$here/large.py' $1 $scale"
}
