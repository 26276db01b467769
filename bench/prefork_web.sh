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
uwsgi_run() { # SIDE
	start uwsgi "$1" uwsgi --plugin python3 --master --processes 8 --max-requests 100 \
		--min-worker-lifetime 0 --forkbomb-delay 0 --need-app --disable-logging \
		--http-socket "$tmp/socket" --chdir "$here" --module prefork_app
	web_run
	stop KILL
	[ $? = 137 ] || broken 'ended before its clients'
	finish
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
