#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Servers: each is started, asked by clients without the shim, and ended. The answers count, and how the
# server ends.
. "$(dirname "$0")/lib.sh"

mkdir "$work/files"
for i in 1 2 3 4 5 6; do seq $((i * 1000)) $((i * 60000)) >"$work/files/$i.txt"; done
chmod -R a+rX "$work/files"
get() { curl -sS --max-time 60 "$@"; }
# fetches URL: what several clients get at once
fetches() {
	local i j clients=
	for i in 1 2 3; do
		for j in 1 2 3 4 5 6; do
			get "$1/$j.txt?$i" | cksum
			get --compressed "$1/$j.txt" | cksum
			get -r 5000-90000 "$1/$j.txt" | cksum
		done >"$work/story/client.$i" &
		clients="$clients $!"
	done
	wait $clients
	cat "$work"/story/client.*
	get -o /dev/null -w '%{http_code}\n' "$1/none"
}
up() { get -o /dev/null "http://127.0.0.1:$port/$1"; }

# ---- The web ----
cat >"$work/apache.conf" <<END
ServerRoot /usr/lib/apache2
LoadModule mpm_MPM_module modules/mod_mpm_MPM.so
LoadModule authz_core_module modules/mod_authz_core.so
LoadModule deflate_module modules/mod_deflate.so
LoadModule filter_module modules/mod_filter.so
LoadModule mime_module modules/mod_mime.so
ServerName localhost
Listen 127.0.0.1:$port
User nobody
Group nogroup
TypesConfig /etc/mime.types
PidFile $work/story/pid
ErrorLog $work/story/error.log
DefaultRuntimeDir $work/story
DocumentRoot $work/files
StartServers 2
AddOutputFilterByType DEFLATE text/plain
AddType text/plain txt
EnableSendfile Off
EnableMMAP On
END
apache_story() {
	sed "s/MPM/$mpm/g" "$work/apache.conf" >"$work/story/conf"
	serve 'up 1.txt' apache2 -f "$work/story/conf" -D FOREGROUND || return
	fetches "http://127.0.0.1:$port"
	kill -USR1 "$(cat "$work/story/pid")"
	fetches "http://127.0.0.1:$port"
	stop
	grep -c 'exit signal' "$work/story/error.log"
	return 0
}
story() { apache_story; }
mpm=prefork && tell apache-prefork 'apache2 curl'
mpm=event && tell apache-event 'apache2 curl'

fpm=$(command -v php-fpm php-fpm8.4 php-fpm8.3 php-fpm8.2 php-fpm8.1 | head -n 1)
cat >"$work/files/a.php" <<'END'
<?php
$n = (int)$_GET['n'];
$a = range(1, 100000 + $n);
mt_srand($n);
shuffle($a);
sort($a);
$s = str_repeat(md5(serialize($a)), 50000);
echo $n, ' ', md5($s), ' ', strlen(gzcompress($s)), "\n";
END
printf '%s\n' '[global]' "error_log = $work/story/error.log" "pid = $work/story/pid" '[www]' 'user = nobody' 'group = nogroup' \
	"listen = $work/story/php.sock" 'listen.mode = 0666' 'pm = static' 'pm.max_children = 3' 'pm.max_requests = 8' \
	'php_admin_value[memory_limit] = 512M' >"$work/fpm.conf"
nginx_conf() { # LOCATIONS
	printf '%s\n' "user $(id -un); worker_processes 2; daemon off; pid $work/story/nginx.pid;" \
		"error_log $work/story/nginx.log notice;" 'events { worker_connections 64; }' 'http {' 'access_log off;' \
		"client_body_temp_path $work/story/b; proxy_temp_path $work/story/p; fastcgi_temp_path $work/story/f;" \
		"uwsgi_temp_path $work/story/u; scgi_temp_path $work/story/s;" 'sendfile off; output_buffers 2 2m;' \
		"server { listen 127.0.0.1:$port; root $work/files; gzip on; gzip_types text/plain; types { text/plain txt; }" \
		"$1 } }"
}
story() {
	serve "test -S $work/story/php.sock" "$fpm" -F -n -y "$work/fpm.conf" || return
	local i front
	nginx_conf "location ~ \.php { fastcgi_pass unix:$work/story/php.sock; fastcgi_param SCRIPT_FILENAME \$document_root\$uri;
		fastcgi_param QUERY_STRING \$query_string; fastcgi_param REQUEST_METHOD \$request_method; }" >"$work/story/conf"
	nginx -p "$work/story" -c "$work/story/conf" -e "$work/story/log" 2>/dev/null &
	front=$!
	until_true up 1.txt
	for i in $(seq 30); do get "http://127.0.0.1:$port/a.php?n=$i"; done
	seq 30 | xargs -P 3 -I{} curl -sS "http://127.0.0.1:$port/a.php?n={}" | sort
	kill "$front"
	stop QUIT
	grep -c 'exited on signal' "$work/story/error.log"
	return 0
}
tell php-fpm "${fpm:-php-fpm} nginx curl"
story() {
	nginx_conf "location /p/ { proxy_pass http://127.0.0.1:$port/; proxy_buffers 6 1m; proxy_buffer_size 128k; proxy_busy_buffers_size 2m; }" >"$work/story/conf"
	serve 'up 1.txt' nginx -p "$work/story" -c "$work/story/conf" -e "$work/story/log" || return
	fetches "http://127.0.0.1:$port/p"
	fetches "http://127.0.0.1:$port"
	stop QUIT
	grep -cE 'exited on signal|\[(alert|emerg|crit)\]' "$work/story/nginx.log"
	return 0
}
tell nginx 'nginx curl'
printf '%s\n' "server.document-root = \"$work/files\"" 'server.bind = "127.0.0.1"' "server.port = $port" \
	'mimetype.assign = ( ".txt" => "text/plain" )' 'server.network-backend = "write"' >"$work/lighttpd.conf"
story() {
	serve 'up 1.txt' lighttpd -D -f "$work/lighttpd.conf" || return
	fetches "http://127.0.0.1:$port"
	stop INT
}
tell lighttpd 'lighttpd curl'

# back: a server of files without the shim at $port; the server under test is at $((port + 1))
back() {
	nginx_conf '' >"$work/story/conf"
	nginx -p "$work/story" -c "$work/story/conf" -e "$work/story/back.log" 2>/dev/null &
	behind=$!
	until_true up 1.txt
}
front_up() { get -o /dev/null "http://127.0.0.1:$((port + 1))/1.txt"; }
story() {
	back
	printf '%s\n' global 'maxconn 100' 'nbthread 2' "stats socket $work/story/ctl level admin" defaults 'mode http' 'timeout connect 9s' \
		'timeout client 99s' 'timeout server 99s' 'frontend f' "bind 127.0.0.1:$((port + 1))" 'default_backend b' 'compression algo gzip' \
		'backend b' "server s 127.0.0.1:$port" >"$work/story/ha"
	serve front_up haproxy -W -db -f "$work/story/ha" || return
	fetches "http://127.0.0.1:$((port + 1))"
	kill -USR2 "$main"
	fetches "http://127.0.0.1:$((port + 1))"
	stop
	kill $behind
}
tell haproxy 'haproxy nginx curl'
story() {
	back
	serve front_up varnishd -F -n "$work/story/v" -a "127.0.0.1:$((port + 1))" -b "127.0.0.1:$port" -s malloc,64m -j none -p thread_pools=1 || return
	fetches "http://127.0.0.1:$((port + 1))"
	fetches "http://127.0.0.1:$((port + 1))"
	stop
	kill $behind
}
tell varnish 'varnishd nginx curl gcc'
story() {
	back
	chmod 777 "$work/story"
	printf '%s\n' "http_port 127.0.0.1:$((port + 1)) accel defaultsite=x no-vhost" "cache_peer 127.0.0.1 parent $port 0 no-query originserver" \
		'http_access allow all' 'cache_mem 64 MB' 'maximum_object_size_in_memory 4 MB' 'access_log none' "cache_log $work/story/squid.log" \
		"pid_filename $work/story/squid.pid" 'cache_effective_user nobody' 'cache_effective_group nogroup' "coredump_dir $work/story" \
		'shutdown_lifetime 1 seconds' 'netdb_filename none' 'pinger_enable off' 'via off' >"$work/story/squid.conf"
	serve front_up squid --foreground -n cow$$ -f "$work/story/squid.conf" || return
	fetches "http://127.0.0.1:$((port + 1))"
	fetches "http://127.0.0.1:$((port + 1))"
	stop
	kill $behind
}
tell squid 'squid nginx curl'

# ---- Names ----
awk 'BEGIN { print "$TTL 60\n@ SOA a. b. 1 60 60 60 60\n@ NS a\na A 10.0.0.1"
	for (i = 0; i < 60000; i++) print "h" i " A 10." int(i / 65536) "." int(i / 256) % 256 "." i % 256 "\nh" i " TXT \"text " i "\"" }' >"$work/zone"
printf '%s\n' "options { directory \"$work/story\"; listen-on port $port { 127.0.0.1; }; listen-on-v6 { none; }; recursion no;" \
	"pid-file none; session-keyfile none; allow-transfer { any; }; };" 'controls { };' "zone \"x\" { type primary; file \"$work/zone\"; };" >"$work/named.conf"
ask() { dig +short +tries=5 @127.0.0.1 -p "$port" "$@"; }
names() {
	local i
	for i in $(seq 1 2999 59000); do ask "h$i.x" && ask TXT "h$i.x"; done
	ask none.x
	ask AXFR x | sort | cksum
}
named_up() { ask a.x | grep -q 10.0.0.1; }
story() {
	serve named_up named -g -n 2 -c "$work/named.conf" || return
	names
	stop
}
tell named 'named dig'
story() {
	printf '%s\n' server: "interface: 127.0.0.1@$port" 'do-daemonize: no' 'username: ""' 'chroot: ""' "directory: \"$work/story\"" 'pidfile: ""' \
		'num-threads: 2' 'msg-cache-size: 16m' 'rrset-cache-size: 32m' 'local-zone: "x." static' 'local-data: "a.x. A 10.0.0.1"' >"$work/story/conf"
	awk '/^h/ { sub(/^h[0-9]*/, "&.x.", $1); gsub(/"/, "", $0); print "local-data: \"" $1 " " $2 " " $3 ($4 == "" ? "" : $4) "\"" }' "$work/zone" >>"$work/story/conf"
	serve named_up unbound -d -c "$work/story/conf" || return
	for i in $(seq 1 2999 59000); do ask "h$i.x" && ask TXT "h$i.x"; done
	stop
}
tell unbound 'unbound dig'

# ---- Data ----
story() {
	local sql="mariadb -S $work/story/sock -u root -N"
	mkdir "$work/story/data" && chown nobody "$work/story/data" "$work/story" 2>/dev/null
	mariadb-install-db --no-defaults --user=nobody --datadir="$work/story/data" --skip-test-db --auth-root-authentication-method=normal \
		>"$work/story/log" 2>&1 || return
	serve "mariadb-admin -S $work/story/sock -u root ping" mariadbd --no-defaults --user=nobody --datadir="$work/story/data" \
		--socket="$work/story/sock" --skip-networking --pid-file="$work/story/pid" --innodb-buffer-pool-size=64M --innodb-flush-log-at-trx-commit=0 \
		--sort-buffer-size=16M --tmp-table-size=64M --max-heap-table-size=64M --sync-binlog=0 || return
	$sql -e 'CREATE DATABASE d; USE d; CREATE TABLE t (n INT PRIMARY KEY, a INT, b TEXT, KEY (a));
		INSERT INTO t SELECT seq, seq * 7919 % 10007, REPEAT(MD5(seq), 3) FROM seq_1_to_60000;
		SELECT COUNT(*), SUM(LENGTH(b)), MAX(b) FROM t; SELECT a, COUNT(*), MIN(b) FROM t GROUP BY a ORDER BY 2 DESC, 1 LIMIT 20;
		SELECT COUNT(*) FROM t x JOIN t y ON x.a = y.a AND x.b < y.b; SELECT MD5(GROUP_CONCAT(b ORDER BY b)) FROM t WHERE n < 5000;
		UPDATE t SET b = CONCAT(b, a) WHERE n % 7 = 0; DELETE FROM t WHERE n % 3 = 0; CHECKSUM TABLE t; CHECK TABLE t'
	mariadb-admin -S "$work/story/sock" -u root shutdown
	ended
}
tell mariadb 'mariadbd mariadb-install-db mariadb-admin'
story() {
	local user= sql
	mkdir -m 777 "$work/story/data" && [ "$(id -u)" -ne 0 ] || { chown postgres "$work/story/data" && user='setpriv --reuid=postgres --regid=postgres --clear-groups'; }
	"${how[@]}" $user initdb -D "$work/story/data" -A trust -U postgres --no-sync >"$work/story/log" 2>&1 || return
	serve "psql -h $work/story -U postgres -c SELECT" $user postgres -D "$work/story/data" -k "$work/story" -c listen_addresses= -c fsync=off \
		-c shared_buffers=48MB -c work_mem=24MB -c max_parallel_workers_per_gather=2 -c min_parallel_table_scan_size=0 -c parallel_setup_cost=0 || return
	sql="psql -h $work/story -U postgres -XAtq"
	$sql -c 'CREATE TABLE t AS SELECT n, n * 7919 % 10007 AS a, repeat(md5(n::text), 3) AS b FROM generate_series(1, 100000) n' \
		-c 'CREATE INDEX ON t (a, b)' -c 'SELECT a, count(*), min(b) FROM t GROUP BY a ORDER BY 2 DESC, 1 LIMIT 20' \
		-c 'SELECT md5(string_agg(b, $$,$$ ORDER BY b)) FROM t' -c 'SELECT count(*) FROM t x JOIN t y ON x.a = y.a AND x.b < y.b' \
		-c 'UPDATE t SET b = b || a WHERE n % 7 = 0' -c 'VACUUM' -c 'SELECT sum(length(b)) FROM t'
	seq 12 | xargs -P 3 -I{} $sql -c 'SELECT {}, md5(array_agg(a ORDER BY b)::text) FROM t WHERE n % {} = 0' | sort
	stop INT
}
tell postgres 'initdb postgres psql'
# to PORT: speaks the text of standard input to a server
to() { python3 -c 'import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 60)
s.sendall(sys.stdin.buffer.read())
while data := s.recv(1 << 16): sys.stdout.buffer.write(data)' "$1"; }
story() {
	local user=
	[ "$(id -u)" -ne 0 ] || user='-u nobody'
	serve "eval echo quit | to $port" memcached $user -l 127.0.0.1 -p "$port" -m 128 -I 4m -t 2 || return
	python3 -c 'for i in range(3000):
    v = ("text %d " % i) * (1 + i * 31 % 2000)
    print("set k%d 0 0 %d\r\n%s\r" % (i, len(v), v))
for i in range(0, 3000, 7): print("get k%d\r" % i)
print("quit\r")' | to "$port" | cksum
	stop
}
tell memcached 'memcached python3'
story() {
	serve "redis-cli -s $work/story/sock ping" redis-server --port 0 --unixsocket "$work/story/sock" --dir "$work/story" --save '' --loglevel warning || return
	python3 -c 'for i in range(60000): print("SET k%d %s" % (i, "text%d" % i * (1 + i * 31 % 40)))
for i in range(60000): print("ZADD z %d m%d" % (i * 7919 % 10007, i))' | redis-cli -s "$work/story/sock" | sort | uniq -c
	for i in 1 2; do
		redis-cli -s "$work/story/sock" bgsave >/dev/null
		redis-cli -s "$work/story/sock" eval 'for i = 0, 20000 do redis.call("APPEND", "k" .. i, ARGV[1]) end return redis.call("STRLEN", "k777")' 0 "more$i"
		until_true sh -c "redis-cli -s $work/story/sock info persistence | grep -q bgsave_in_progress:0"
		redis-cli -s "$work/story/sock" info persistence | grep last_bgsave_status
	done
	redis-cli -s "$work/story/sock" debug digest
	redis-cli -s "$work/story/sock" zrange z 5000 5010
	redis-cli -s "$work/story/sock" shutdown nosave
	ended
}
tell redis 'redis-server redis-cli'
story() {
	mkdir "$work/story/db"
	printf '%s\n' 'include /etc/ldap/schema/core.schema' 'modulepath /usr/lib/ldap' 'moduleload back_mdb' 'database mdb' 'suffix dc=x' \
		'rootdn cn=a,dc=x' 'rootpw p' "directory $work/story/db" 'index cn eq' 'sizelimit unlimited' 'maxsize 200000000' >"$work/story/conf"
	awk 'BEGIN { print "dn: dc=x\nobjectClass: dcObject\nobjectClass: organization\no: x\ndc: x\n"
		for (i = 0; i < 1500; i++) print "dn: cn=c" i ",dc=x\nobjectClass: person\ncn: c" i "\nsn: s" i * 7919 % 1009 "\n" }' >"$work/story/ldif"
	serve "ldapsearch -x -H ldap://127.0.0.1:$port -s base" slapd -d 0 -h "ldap://127.0.0.1:$port" -f "$work/story/conf" || return
	ldapadd -x -H "ldap://127.0.0.1:$port" -D cn=a,dc=x -w p -f "$work/story/ldif" | grep -c adding
	for i in 1 2 3; do ldapsearch -x -LLL -H "ldap://127.0.0.1:$port" -b dc=x "(sn=s*$i)" cn | sort | cksum; done
	stop
}
tell slapd 'slapd ldapadd'
story() {
	printf '%s\n' "listener $port 127.0.0.1" 'allow_anonymous true' 'max_queued_messages 100000' 'user nobody' >"$work/story/conf"
	serve "eval : | to_check $port" mosquitto -c "$work/story/conf" || return
	python3 - "$port" <<'END'
import socket, struct, sys
def packet(kind, body):
    n, head = len(body), b""
    while True:
        n, d = divmod(n, 128)
        head += bytes([d | (128 if n else 0)])
        if not n: return bytes([kind]) + head + body
def text(s): return struct.pack(">H", len(s)) + s
def join(name):
    s = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 60)
    s.sendall(packet(0x10, text(b"MQTT") + b"\4\2\0\74" + text(name)))
    assert s.recv(4) == b"\x20\2\0\0"
    return s
subscribers = [join(b"s%d" % i) for i in range(3)]
for s in subscribers:
    s.sendall(packet(0x82, b"\0\1" + text(b"t/#") + b"\0"))
    assert s.recv(5)[0] == 0x90
p, total = join(b"p"), 0
for i in range(200):
    m = packet(0x30, text(b"t/%d" % i) + bytes([i]) * (1000 + i * 1000))
    p.sendall(m)
    total = len(m)
    for s in subscribers:
        got = b""
        while len(got) < total: got += s.recv(1 << 20)
        assert got == m, i
print("200 messages to 3")
END
	stop
}
to_check() { python3 -c 'import socket, sys; socket.create_connection(("127.0.0.1", int(sys.argv[1])), 9)' "$1"; }
tell mosquitto 'mosquitto python3'

# ---- Mail ----
story() {
	mkdir -m 777 "$work/story/spool" "$work/story/mail"
	printf '%s\n' "spool_directory = $work/story/spool" "log_file_path = $work/story/spool/%slog" "pid_file_path = $work/story/pid" 'exim_user = nobody' \
		'exim_group = nogroup' 'primary_hostname = x' 'local_interfaces = 127.0.0.1' "daemon_smtp_ports = $port" 'tls_advertise_hosts =' \
		'acl_smtp_rcpt = a' 'acl_smtp_data = a' 'never_users =' 'keep_environment =' 'begin acl' 'a:' 'accept' 'begin routers' 'r:' 'driver = accept' 'transport = t' \
		'begin transports' 't:' 'driver = appendfile' "file = $work/story/mail/box" 'user = nobody' 'create_file = anywhere' 'delivery_date_add = false' \
		>"$work/story/conf"
	chmod 644 "$work/story/conf"
	serve "to_check $port" exim4 -bdf -q1h -C "$work/story/conf" || return
	python3 -c 'import smtplib, sys
for i in range(12):
    s = smtplib.SMTP("127.0.0.1", int(sys.argv[1]))
    s.sendmail("a@x", "b@x", "Subject: %d\n\n" % i + ("line %d of many\n" % i) * 20000)
    s.quit()' "$port"
	until_true sh -c "[ \$(grep -c '^Subject:' $work/story/mail/box) = 12 ]"
	grep -E '^(Subject|line)' "$work/story/mail/box" | sort | uniq -c
	stop
	cat "$work"/story/spool/*log 2>/dev/null | grep -ciE 'signal|panic'
	return 0
}
tell exim 'exim4 python3'
story() {
	mkdir -m 777 "$work/story/run" "$work/story/mail"
	printf '%s\n' "base_dir = $work/story/run" "state_dir = $work/story/run" "log_path = $work/story/dovecot.log" 'protocols = imap' 'ssl = no' \
		'disable_plaintext_auth = no' "mail_location = mbox:$work/story/mail:INBOX=$work/story/mail/in" 'passdb {' 'driver = static' 'args = password=p' '}' \
		'userdb {' 'driver = static' 'args = uid=nobody gid=nogroup home='"$work/story/mail" '}' 'first_valid_uid = 1' "listen = 127.0.0.1" \
		'service imap-login {' 'inet_listener imap {' "port = $port" '}' 'inet_listener imaps {' 'port = 0' '}' 'client_limit = 50' '}' \
		'default_internal_user = nobody' 'default_login_user = nobody' 'import_environment = LD_PRELOAD COWSHED_OPTIONS' 'mail_access_groups =' >"$work/story/conf"
	python3 -c 'for i in range(300): print("From a Thu Jan  1 00:00:00 2015\nSubject: m%d\n\n%s" % (i, ("line %d\n" % i) * (1 + i * 97 % 9000)))' >"$work/story/mail/in"
	chmod 666 "$work/story/mail/in"
	serve "to_check $port" dovecot -F -c "$work/story/conf" || return
	python3 -c 'import imaplib, sys, hashlib
for turn in range(3):
    m = imaplib.IMAP4("127.0.0.1", int(sys.argv[1]))
    m.login("u%d" % turn, "p")
    print(m.select("INBOX"))
    data = m.fetch("1:*", "(BODY.PEEK[TEXT])")[1]
    print(len(data), hashlib.md5(b"".join(d[1] for d in data if isinstance(d, tuple))).hexdigest())
    print(m.search(None, "SUBJECT", "m2")[1][0][:60])
    m.logout()' "$port"
	stop
	grep -ciE 'killed with signal|panic' "$work/story/dovecot.log"
	return 0
}
tell dovecot 'dovecot python3'

# ---- Logging in ----
story() {
	local i
	printf '%s\n' "Port $port" 'ListenAddress 127.0.0.1' "HostKey $work/host" "AuthorizedKeysFile $work/user.pub" "PidFile $work/story/pid" \
		'UsePAM no' 'StrictModes no' 'PermitRootLogin yes' 'LogLevel DEBUG1' >"$work/story/conf"
	serve 'login true' "$(command -v sshd)" -D -e -f "$work/story/conf" || return
	for i in 1 2 3; do
		login "head -c ${i}3000000 /dev/zero | cksum"
		head -c "${i}3000000" /dev/zero | login -C cksum
	done
	stop
	grep -ciE 'preauth.*(fatal|killed)|privsep.*signal' "$work/story/log"
	return 0
}
login() {
	ssh -p "$port" -F none -i "$work/user" -o StrictHostKeyChecking=no -o BatchMode=yes -o UserKnownHostsFile=/dev/null \
		-o LogLevel=ERROR "$(id -un)@127.0.0.1" "$@"
}
if command -v ssh-keygen >/dev/null && [ "$(id -u)" -eq 0 ]; then
	mkdir -p /run/sshd
	ssh-keygen -q -t ed25519 -N '' -f "$work/host"
	ssh-keygen -q -t ed25519 -N '' -f "$work/user"
	tell sshd 'sshd ssh'
else
	skip 'sshd no ssh-keygen here, or this is not root'
fi
finish
