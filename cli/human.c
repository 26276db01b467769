/* SPDX-License-Identifier: MIT */
/*
 * Numbers and text for people
 *
 * Values have three significant digits, which are read at a glance: 1.50 GiB,
 * 64.0 KiB, 85.0 us. Sizes are powers of 1024 and say so (KiB). Columns have no
 * room for that; there the letter alone means the same. Counts keep all digits,
 * in groups of three. Results are small structs, not static buffers, so that one
 * printf can have any number of them.
 */
#include "cli/cli.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <strings.h>

struct scale {
	double factor;         /* from one step to the next */
	const char *steps[8];
};

static const struct scale bytes_long = {
	1024, {" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB", NULL}};
static const struct scale bytes_short = {
	1024, {"", "K", "M", "G", "T", "P", "E", NULL}};
static const struct scale ns_long = {
	1000, {" ns", " us", " ms", " s", NULL}};
static const struct scale ns_short = {
	1000, {"ns", "us", "ms", "s", NULL}};
static const struct scale count_short = {
	1000, {"", "k", "M", "G", "T", "P", "E", NULL}};

static struct cli_text scaled(uint64_t value, const struct scale *scale)
{
	struct cli_text text;
	double v = (double)value;
	int step = 0, digits;

	/* Half a unit early: 1023.9 KiB must not become "1024 KiB". */
	while (v >= scale->factor - 0.5 && scale->steps[step + 1] != NULL) {
		v /= scale->factor;
		step++;
	}
	digits = v < 9.995 ? 2 : v < 99.95 ? 1 : 0;
	snprintf(text.s, sizeof text.s, "%.*f%s", step == 0 ? 0 : digits, v,
	         scale->steps[step]);
	return text;
}

struct cli_text cli_count(uint64_t count)
{
	struct cli_text text;
	char plain[24];
	int digits = snprintf(plain, sizeof plain, "%llu",
	                      (unsigned long long)count);
	size_t at = 0;

	for (int i = 0; i < digits; i++) {
		if (i > 0 && (digits - i) % 3 == 0)
			text.s[at++] = ' ';
		text.s[at++] = plain[i];
	}
	text.s[at] = 0;
	return text;
}

struct cli_text cli_bytes(uint64_t bytes)
{
	return scaled(bytes, &bytes_long);
}

struct cli_text cli_duration(uint64_t ns)
{
	return scaled(ns, &ns_long);
}

struct cli_text cli_value(uint64_t value, enum cli_unit unit)
{
	switch (unit) {
	case CLI_BYTES:
		return cli_bytes(value);
	case CLI_NS:
		return cli_duration(value);
	case CLI_COUNT:
		break;
	}
	return cli_count(value);
}

struct cli_text cli_short(uint64_t value, enum cli_unit unit)
{
	switch (unit) {
	case CLI_BYTES:
		return scaled(value, &bytes_short);
	case CLI_NS:
		return scaled(value, &ns_short);
	case CLI_COUNT:
		break;
	}
	return scaled(value, &count_short);
}

/* The letter's power of 1024, or -1. Takes "K", "KB" and "KiB" alike. */
static int suffix_power(const char *suffix)
{
	static const char letters[] = "KMGT";
	const char *found;

	if (*suffix == 0 || strcasecmp(suffix, "B") == 0)
		return 0;
	found = strchr(letters, toupper((unsigned char)*suffix));
	suffix++;
	if (found == NULL || (*suffix != 0 && strcasecmp(suffix, "B") != 0 &&
	                      strcasecmp(suffix, "iB") != 0))
		return -1;
	return (int)(found - letters) + 1;
}

int cli_parse_bytes(const char *text, uint64_t *ret)
{
	size_t length = strspn(text, "0123456789.");
	uint64_t unit;
	double number;
	char *end;
	int power = suffix_power(text + length);

	if (length == 0 || power < 0)
		return -EINVAL;
	number = strtod(text, &end);
	if (end != text + length)
		return -EINVAL;
	unit = UINT64_C(1) << (10 * power);
	if (number * (double)unit > 0x1p62)
		return -ERANGE;
	*ret = (uint64_t)(number * (double)unit);
	return 0;
}

void cli_wrap(FILE *out, int indent, const char *text)
{
	int column = indent;

	while (*text != 0) {
		int length = (int)strcspn(text, " ");

		if (column > indent && column + 1 + length > 79) {
			fprintf(out, "\n%*s", indent, "");
			column = indent;
		} else if (column > indent) {
			fputc(' ', out);
			column++;
		}
		fwrite(text, 1, (size_t)length, out);
		column += length;
		text += length;
		text += strspn(text, " ");
	}
	fputc('\n', out);
}

/* The bytes of the UTF-8 character at `t`; 0: it is none, or a control character. */
static int printable(const unsigned char *t)
{
	int n = t[0] < 0x80 ? 1 : t[0] < 0xc2 ? 0 : t[0] < 0xe0 ? 2
	        : t[0] < 0xf0 ? 3 : t[0] < 0xf5 ? 4 : 0;

	for (int i = 1; i < n; i++)
		if ((t[i] & 0xc0) != 0x80)
			return 0;
	if ((n == 1 && (t[0] < ' ' || t[0] == 127)) ||
	    (t[0] == 0xc2 && t[1] < 0xa0))
		return 0;
	/* Overlong: some decoders take it for the character in its short form. */
	if ((t[0] == 0xe0 && t[1] < 0xa0) || (t[0] == 0xf0 && t[1] < 0x90))
		return 0;
	return n;
}

void cli_tame(char *text)
{
	while (*text != 0) {
		int n = printable((const unsigned char *)text);

		if (n == 0)
			*text = '?';
		text += n > 0 ? n : 1;
	}
}

uint64_t cli_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
