# SPDX-License-Identifier: MIT
#
# section3.awk: makes the manual pages of section 3 from the public headers.
#
# The headers are the reference. The opening comment of a header, and all that precedes its
# first section, is the page with the header's name. Each "/* ---- Title: page(3) ---- */"
# begins another page. A comment belongs to the declarations below it, up to a blank line.
# The list `links` has every function and its page.
#
#     awk -v out=FOLDER -v version=0.1.0 -v date=2026-01-31 -f section3.awk HEADER...

function escaped(text) {
	gsub(/\\/, "\\e", text)
	gsub(/-/, "\\-", text)
	sub(/^[.']/, "\\\\\\&&", text)
	return text
}

# The lines of a comment: paragraphs. Indented lines are printed verbatim.
function prose(text,    n, i, line, lines, example, s, gap) {
	n = split(text, lines, "\n")
	for (i = 1; i <= n; i++) {
		line = lines[i]
		if (line ~ /^ *$/) {
			gap = 1
			continue
		}
		if ((line ~ /^  /) != example) {
			example = !example
			s = s (example ? ".PP\n.EX\n" : ".EE\n.PP\n")
		} else if (gap)
			s = s (example ? "\n" : ".PP\n")
		gap = 0
		if (!example)
			sub(/^ +/, "", line)
		s = s escaped(line) "\n"
	}
	return s (example ? ".EE\n" : "")
}

function finish_chunk() {
	if (code != "")
		body = body ".PP\n.EX\n" code ".EE\n"
	if (comment != "")
		body = body (code == "" ? "" : ".RS\n") ".PP\n" prose(comment) \
			(code == "" ? "" : ".RE\n")
	comment = code = ""
}

# cowshed-tensor.h and cowshed-cuda.h have libraries of their own; libcowshed has the rest.
function library_of(header) {
	return header ~ /^cowshed-(tensor|cuda)\.h$/ ? substr(header, 1, length(header) - 2) : \
		"cowshed"
}

function finish_page(    file, n, i, names, list, library) {
	finish_chunk()
	if (page == "")
		return
	n = split(functions, names, " ")
	for (i = 1; i <= n; i++) {
		if (names[i] == page)
			continue
		list = list ", " names[i]
		print names[i], page >(out "/links")
	}
	file = out "/" page ".3"
	printf ".\\\" SPDX-License-Identifier: MIT\n.TH %s 3 %s \"cowshed %s\" " \
		"\"Library Functions\"\n", toupper(page), date, version >file
	printf ".SH NAME\n%s%s \\- %s\n", page, list, escaped(title) >file
	library = escaped(library_of(header))
	printf ".SH LIBRARY\n%s (lib%s, \\-l%s; pkg\\-config %s)\n", library, library, \
		library, library >file
	printf ".SH SYNOPSIS\n.nf\n.B #include <%s>\n%s.fi\n", header, (synopsis == "" ? \
		"" : ".PP\n") synopsis >file
	while (gsub(/\.PP\n\.PP\n/, ".PP\n", body))
		continue
	gsub(/\.PP\n\.RE\n/, ".RE\n", body)
	gsub(/^\.PP\n|\.PP\n$/, "", body)
	printf ".SH DESCRIPTION\n%s.SH SEE ALSO\n", body >file
	n = split(pages[header], names, " ")
	for (i = 1; i <= n; i++)
		if (names[i] != page)
			printf ".BR %s (3),\n", names[i] >file
	printf "%s.BR cowshed (1)\n", (header == "cowshed.h" ? "" : ".BR cowshed (3),\n") >file
	close(file)
	page = ""
}

function start_page(name, text) {
	finish_page()
	page = name
	title = text
	body = synopsis = functions = ""
}

function section(line) {
	return line ~ /^\/\* ---- .*\(3\) -* ?\*\/$/
}

function base(path) {
	sub(/.*\//, "", path)
	return path
}

BEGIN {
	for (i = 1; i < ARGC; i++) {
		name = base(ARGV[i])
		pages[name] = substr(name, 1, length(name) - 2)
		while ((getline line <ARGV[i]) > 0)
			if (section(line)) {
				sub(/\(3\) .*/, "", line)
				sub(/.* /, "", line)
				pages[name] = pages[name] " " line
			}
		close(ARGV[i])
	}
}

FNR == 1 {
	finish_page()
	header = base(FILENAME)
	start_page(substr(header, 1, length(header) - 2), "")
	depth = inside = 0
}
/SPDX-License-Identifier/ || /^extern "C"/ || /^#(if|endif|include)/ || /^}$/ { next }

section($0) {
	text = $0
	gsub(/^\/\* -+ | -* ?\*\/$/, "", text)
	name = text
	sub(/.*: /, "", name)
	sub(/\(3\).*/, "", name)
	sub(/: [^:]*$/, "", text)
	start_page(name, tolower(substr(text, 1, 1)) substr(text, 2))
	next
}

# A comment between declarations. A comment within a declaration is printed as code.
!depth && /^\/\*/ {
	finish_chunk()
	inside = 1
}
inside {
	line = $0
	inside = line !~ /\*\/ *$/
	sub(/^\/\* ?/, "", line)
	sub(/ *\*\/ *$/, "", line)
	sub(/^ \* ?/, "", line)
	if (title == "" && line ~ /^cowshed: /) {
		title = substr(line, 10)
		next
	}
	comment = comment line "\n"
	next
}

/^ *$/ && !depth {
	finish_chunk()
	next
}

/^#define COWSHED/ { next }

# A declaration, on one line or several.
{
	line = $0
	gsub(/\t/, "        ", line)
	code = code escaped(line) "\n"
	if (!depth && line !~ /^(typedef|#)/ && match(line, /cow_[a-z0-9_]+\(/)) {
		functions = functions " " substr(line, RSTART, RLENGTH - 1)
		going = 1
	}
	if (going) {
		synopsis = synopsis escaped(line) "\n"
		going = line !~ /;/
	}
	depth += gsub(/{/, "{", line) - gsub(/}/, "}", line)
}
END { finish_page() }
