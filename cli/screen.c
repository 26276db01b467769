/* SPDX-License-Identifier: MIT */
/*
 * Takes the terminal, and gives it back
 *
 * The same calls serve three kinds of output:
 *
 *      a terminal with escape codes    another screen, redrawn in place; q quits
 *      a dumb terminal                 frame after frame; q quits
 *      a file or a pipe                frame after frame
 *
 * However we end, the terminal must be as before. So signals are blocked except
 * while we wait for time or keys, and the handler only notes the number. The
 * ordinary flow then gives the terminal back and raises the signal again. That
 * ends or stops us as if there were no handler.
 */
#include "cli/cli.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

static const int caught_signals[] = {
	SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH,
};

enum { CAUGHT = sizeof caught_signals / sizeof caught_signals[0] };

static struct {
	bool positions;        /* the terminal understands escape codes */
	bool keys;             /* stdin is a terminal that we read */
	int rows, columns;     /* 0: no limit */
	int row;
	bool drawn;            /* not the first frame */
	int fatal;             /* the signal to die of at the end */
	sigset_t mask;         /* as before; also while waiting */
	struct termios before;
} screen;

static volatile sig_atomic_t caught;

static void on_signal(int number)
{
	/* Of several at once the first counts that is not SIGWINCH. */
	if (caught == 0 || caught == SIGWINCH)
		caught = number;
}

/* Ignored signals stay ignored (nohup). The others are blocked until we wait. */
static void catch_signals(void)
{
	struct sigaction note = {.sa_handler = on_signal}, present;
	sigset_t block;

	sigemptyset(&block);
	for (int i = 0; i < CAUGHT; i++) {
		sigaction(caught_signals[i], NULL, &present);
		if (present.sa_handler == SIG_IGN)
			continue;
		sigaction(caught_signals[i], &note, NULL);
		sigaddset(&block, caught_signals[i]);
	}
	sigprocmask(SIG_BLOCK, &block, &screen.mask);
}

static void measure(void)
{
	struct winsize size;

	screen.rows = screen.columns = 0;
	if (!screen.positions)
		return;
	screen.rows = 24;
	screen.columns = 80;
	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 &&
	    size.ws_col > 0) {
		screen.rows = size.ws_row;
		screen.columns = size.ws_col;
	}
}

static void terminal_take(void)
{
	struct termios raw = screen.before;

	if (screen.keys) {
		raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
		raw.c_cc[VMIN] = 1;
		raw.c_cc[VTIME] = 0;
		tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
	}
	if (screen.positions) /* the other screen, no cursor */
		fputs("\033[?1049h\033[?25l", stdout);
	fflush(stdout);
}

static void terminal_give_back(void)
{
	if (screen.positions)
		fputs("\033[?25h\033[?1049l", stdout);
	fflush(stdout);
	if (screen.keys)
		tcsetattr(STDIN_FILENO, TCSADRAIN, &screen.before);
}

void cli_screen_open(bool batch)
{
	const char *kind = getenv("TERM");
	bool out = !batch && isatty(STDOUT_FILENO);

	screen.positions = out && kind != NULL && *kind != 0 &&
	                   strcmp(kind, "dumb") != 0;
	screen.keys = out && tcgetattr(STDIN_FILENO, &screen.before) == 0;
	catch_signals();
	measure();
	terminal_take();
}

/* Ends or stops us, as the signal does without a handler. */
static void suffer(int number)
{
	struct sigaction normal = {.sa_handler = SIG_DFL}, present;
	sigset_t one;

	sigaction(number, &normal, &present);
	kill(getpid(), number);
	sigemptyset(&one);
	sigaddset(&one, number);
	sigprocmask(SIG_UNBLOCK, &one, NULL);
	/* Only a stop returns. */
	sigprocmask(SIG_BLOCK, &one, NULL);
	sigaction(number, &present, NULL);
}

void cli_screen_close(void)
{
	terminal_give_back();
	if (screen.fatal != 0)
		suffer(screen.fatal);
	sigprocmask(SIG_SETMASK, &screen.mask, NULL);
}

void cli_screen_begin(void)
{
	screen.row = 0;
	if (screen.positions)
		fputs("\033[H", stdout);
	else if (screen.drawn)
		putchar('\n');
	screen.drawn = true;
}

bool cli_screen_line(const char *format, ...)
{
	char text[512];
	va_list args;

	if (screen.rows > 0 && screen.row >= screen.rows)
		return false;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	/* Not into the last column: clearing from there erases a character. */
	if (screen.columns > 0 && (size_t)screen.columns < sizeof text)
		text[screen.columns - 1] = 0;
	/* No newline behind the last row: it would scroll. */
	if (screen.positions)
		printf("%s%s\033[K", screen.row > 0 ? "\r\n" : "", text);
	else
		printf("%s\n", text);
	screen.row++;
	return true;
}

void cli_screen_end(void)
{
	if (screen.positions)
		fputs("\033[J", stdout);
	fflush(stdout);
}

static enum cli_event on_caught(int number)
{
	if (number == SIGWINCH) {
		measure();
		return CLI_EVENT_REDRAW;
	}
	if (number != SIGTSTP) {
		screen.fatal = number;
		return CLI_EVENT_QUIT;
	}
	terminal_give_back();
	suffer(SIGTSTP);
	measure();
	terminal_take();
	return CLI_EVENT_REDRAW;
}

/* Reads the keys that were typed. True: quit. */
static bool typed_quit(void)
{
	char keys[64];
	ssize_t n = read(STDIN_FILENO, keys, sizeof keys);

	if (n <= 0)
		screen.keys = n < 0 && errno == EINTR;
	for (ssize_t i = 0; i < n; i++)
		if (keys[i] == 'q' || keys[i] == 'Q')
			return true;
	return false;
}

enum cli_event cli_screen_wait(uint64_t ns)
{
	const uint64_t end = cli_now_ns() + ns;
	struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
	uint64_t now;

	while ((now = cli_now_ns()) < end) {
		struct timespec left = {
			.tv_sec = (time_t)((end - now) / 1000000000u),
			.tv_nsec = (long)((end - now) % 1000000000u),
		};
		int r;

		caught = 0;
		r = ppoll(&input, screen.keys ? 1 : 0, &left, &screen.mask);
		if (caught != 0)
			return on_caught(caught);
		if (r > 0 && typed_quit())
			return CLI_EVENT_QUIT;
	}
	return CLI_EVENT_TIME;
}
