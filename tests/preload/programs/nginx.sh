#!/bin/bash
# SPDX-License-Identifier: MIT
#
# nginx with workers: files, compressed files and a proxy with large buffers,
# fetched by several clients at once, and workers that are replaced meanwhile.
. "$(dirname "$0")/../lib.sh"
limit=300
PATH=$PATH:/usr/sbin

for program in nginx curl; do
	command -v $program >/dev/null || { skip "nginx no $program here" && finish; }
done

mkdir "$work/files"
for i in 1 2 3 4 5 6 7 8; do
	seq $((i * 1000)) $((i * 30000)) >"$work/files/$i.txt"
done
me=$(id -un)
cat >"$work/nginx.conf" <<END
user $me;
worker_processes 3;
daemon off;
pid $work/story/pid;
error_log $work/story/log notice;
events { worker_connections 64; }
http {
	access_log off;
	client_body_temp_path $work/story/body;
	proxy_temp_path $work/story/proxy;
	fastcgi_temp_path $work/story/fastcgi;
	uwsgi_temp_path $work/story/uwsgi;
	scgi_temp_path $work/story/scgi;
	sendfile off;
	output_buffers 2 2m;
	gzip_types text/plain;
	gzip_buffers 4 256k;
	server {
		listen unix:$work/story/sock;
		root $work/files;
		types { text/plain txt; }
		location /z/ { gzip on; gzip_comp_level 9; alias $work/files/; }
		location /p/ {
			proxy_pass http://unix:$work/story/sock:/;
			proxy_buffer_size 128k;
			proxy_buffers 6 1m;
			proxy_busy_buffers_size 2m;
		}
	}
}
END

fetch() { curl -sS --unix-socket "$work/story/sock" "$@"; }
reloaded() { [ "$(grep -c 'start worker processes' "$work/story/log")" -gt "$1" ]; }

# client NUMBER: what it gets, as sums
client() {
	local i
	for i in 1 2 3 4 5 6 7 8; do
		fetch "http://x/$i.txt" | cksum
		fetch --compressed "http://x/z/$i.txt" | cksum
		fetch "http://x/p/$i.txt" | cksum
		fetch -r 5000-900000 "http://x/p/z/$i.txt" | cksum
	done >"$work/story/client.$1"
}

story() {
	local pid clients= i
	"$@" nginx -p "$work/story" -c "$work/nginx.conf" -e "$work/story/log" &
	pid=$!
	until_true fetch http://x/1.txt || return 1
	for i in 1 2 3 4; do
		client $i &
		clients="$clients $!"
	done
	for i in 1 2 3; do
		kill -HUP "$(cat "$work/story/pid")"
		until_true reloaded "$i"
	done
	wait $clients
	cat "$work"/story/client.*
	fetch -o /dev/null -w '%{http_code}\n' http://x/none
	kill -QUIT "$(cat "$work/story/pid")"
	wait "$pid"
	echo "exit status $?"
	grep -cE 'exited on signal|\[(alert|emerg|crit)\]' "$work/story/log"
	return 0
}

stories nginx
finish
