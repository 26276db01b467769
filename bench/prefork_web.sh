# SPDX-License-Identifier: MIT
#
# gunicorn and uwsgi with a large state (sourced by prefork.sh)
#
# For each part P: P_lacks prints what is missing, P_run SIDE runs it once, P_lines
# reports its figures.

gunicorn_lacks() {
	have gunicorn || echo 'no gunicorn'
}

uwsgi_lacks() {
	have uwsgi || { echo 'no uwsgi'; return; }
	uwsgi --plugin python3 --version 2>&1 | grep -q 'UNABLE to load' &&
		! uwsgi --plugins-list 2>&1 | grep -q python && echo 'no plugin python3 of uwsgi'
}

# --worker-tmp-dir: the heartbeat file of a worker must not be on a disk.
gunicorn_run() { # SIDE
	start gunicorn "$1" gunicorn --preload --workers 8 --max-requests 100 \
		--bind "unix:$tmp/socket" --worker-tmp-dir /dev/shm --log-level warning \
		--chdir "$here" prefork_app:application
	web_run
	stop || broken "ended with $?"
	finish
}

# By default uwsgi replaces no worker that is younger than a minute, and waits before it
# replaces one that lived for less than two seconds. A uwsgi that is told to end while it
# replaces workers may wait for ever for a new one, so it is killed.
uwsgi_run() { # SIDE [PART]
	start "${2:-uwsgi}" "$1" uwsgi --plugin python3 --master --processes 8 --max-requests 100 \
		--min-worker-lifetime 0 --forkbomb-delay 0 --need-app --disable-logging \
		--http-socket "$tmp/socket" --chdir "$here" --module prefork_app
	web_run
	stop KILL
	[ $? = 137 ] || broken 'ended before its clients'
	finish
}

# The master of uwsgi looks for ended workers once a second. Slow forks keep it from sleeping, and
# so a plain uwsgi with a large state replaces more workers than one with a small state. Here a
# signal wakes it, on both sides.
uwsgi_woken_lacks() {
	uwsgi_lacks
}

uwsgi_woken_run() { # SIDE
	export PREFORK_CHILD_WAKES=1
	uwsgi_run "$1" uwsgi_woken
	unset PREFORK_CHILD_WAKES
}

web_run() {
	until_up "$bin/plain_http" -s "$tmp/socket" -c 1 -t 0.01 -w 0
	"$bin/plain_http" -s "$tmp/socket" -t "$seconds" >"$tmp/lines" ||
		broken 'was left by its clients'
	note request "$(field request_us <"$tmp/lines")"
	note request-99% "$(field p99_us <"$tmp/lines")"
}

web_lines() { # PART
	part=$1
	line request us speedup 0.98
	line request-99% us ratio 1
	lines_of_all
}

gunicorn_lines() {
	web_lines gunicorn
}

uwsgi_lines() {
	web_lines uwsgi
}

uwsgi_woken_lines() {
	web_lines uwsgi_woken
}
