#!/bin/bash
# SPDX-License-Identifier: MIT
#
# lint-python.sh: what lint.sh can't say about Python: all of it compiles, pyflakes finds
# nothing (where there is one), lines fit, files need each other in one direction, and the
# extension module is what it claims to be: compiled without a warning, nothing exported, no name
# of our library but public ones.
set -u
export LC_ALL=C
build=${BUILD:-build/plain}
bad=$(mktemp) && trap 'rm -f "$bad"' EXIT
rule() { sed "s|^|lint: $1: |" | tee -a "$bad"; }

mapfile -t files < <(find . -name '.git' -prune -o -path ./build -prune -o -type f \
	\( -name '*.py' -o -name '*.pyi' \) -print | sed 's|^\./||' | sort)
stubs() { printf '%s\n' "${files[@]}" python/*.toml python/*.txt | grep -v '\.py$'; }

grep -nE '^.{101}' "${files[@]}" | cut -c1-60 | rule 'over 100 columns'
for f in $(stubs); do
	head -n 2 "$f" | grep -q 'SPDX-License-Identifier: MIT' || echo "$f"
done | rule 'no SPDX line at the top'
grep -nE $'[ \t\r]$|\t' $(stubs) | rule 'stray blanks'
printf '%s\n' "${files[@]}" | xargs -r wc -l |
	awk '$2 != "total" && $1 > 500' | rule 'over 500 lines'

if python=$(scripts/python.sh); then
	"$python" - "${files[@]}" <<-'END' 2>&1 | rule 'Python'
		import sys
		import warnings
		warnings.simplefilter("always")
		warnings.showwarning = lambda text, kind, file, line, *more: print(f"{file}:{line}: {text}")
		for name in sys.argv[1:]:
		    try:
		        with open(name, "rb") as file:
		            compile(file.read(), name, "exec", dont_inherit=True)
		    except SyntaxError as error:
		        print(f"{name}:{error.lineno}: {error.msg}")
	END
	# The parts of the package, from the ground up: python/cowshed/README.md.
	order='_cowshed _memory _states _pyobjects multiprocessing torch,dask,joblib,arrow,ray'
	"$python" scripts/lint-cycles.py --order "$order" --objects "$build/obj" \
		python/cowshed python/_cowshed 2>&1 | rule 'order of files'
fi
if python=$(scripts/python.sh pyflakes); then
	# It does not know stubs, nor that "import x as x" is for others to import. Lines with
	# "noqa" say why not.
	printf '%s\n' "${files[@]}" | grep '\.py$' | xargs "$python" -m pyflakes 2>&1 |
		while IFS=: read -r file line what; do
			name=$(sed -nE "s/.*'[^']*\b(\w+)' imported but unused.*/\1/p" <<<"$what")
			sed -n "${line}p" "$file" 2>/dev/null | grep -q '# noqa' ||
				grep -qsE "\b${name:-/} as ${name:-/}\b" "$file" || echo "$file:$line:$what"
		done | rule 'pyflakes'
else
	echo 'lint: no pyflakes here'
fi

module=$build/python/cowshed/_cowshed.abi3.so
if [ -n "${PYTHON_H:-}" ]; then
	${CC:-gcc} -std=gnu11 -D_GNU_SOURCE= -Wall -Wextra -Wno-missing-field-initializers -pthread \
		-I. -Iinclude -isystem "$PYTHON_H" -DPy_LIMITED_API=0x030b0000 -fsyntax-only \
		python/_cowshed/*.c 2>&1 | grep -E '(warning|error):' | rule 'compiler'
fi
if [ -e "$module" ]; then
	nm -D --defined-only "$module" | awk '$3 != "PyInit__cowshed" { print $3 }' | rule 'exports'
	nm -D --undefined-only "$module" | awk '$2 ~ /^_Py/ { sub(/@.*/, "", $2); print $2 }' |
		grep -vE '^_Py(_Dealloc|_.*Struct|.*_SizeT|Object_(GC_)?New(Var)?)$' |
		rule 'not of the stable ABI'
fi

echo "lint: ${#files[@]} files of Python, $(wc -l <"$bad") violations"
[ ! -s "$bad" ]
