#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Programs that filter the system calls of their own processes, and end these for any other:
# the child of sshd that reads before anybody has logged in, Firefox, and Chromium with its
# sandbox, which root has none of. With and without the option mmap.
. "$(dirname "$0")/../lib.sh"
limit=120
must_succeed=1
PATH=$PATH:/usr/sbin

settings() { # COMMAND...: once, and once with mmaps served
	"$@"
	also=mmap=1M "$@"
}

# ---- sshd ----
port=$((20000 + $$ % 20000))
login() {
	ssh -p "$port" -F none -i "$work/user" -o StrictHostKeyChecking=no -o BatchMode=yes \
		-o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o IdentitiesOnly=yes "$(id -un)@127.0.0.1" "$@"
}

story() {
	local pid
	"$@" "$(command -v sshd)" -D -e -f "$work/sshd" 2>"$work/story/log" &
	pid=$!
	until_true login true || return 1
	login 'head -c 3000000 /dev/zero | cksum'
	head -c 3000000 /dev/zero | login cksum
	kill "$(cat "$work/story/pid")"
	wait "$pid"
	echo "exit status $?"
	grep -c 'preauth.*\(fatal\|killed\)' "$work/story/log"
	return 0
}

if command -v sshd >/dev/null && command -v ssh-keygen >/dev/null && [ "$(id -u)" -eq 0 ]; then
	mkdir -p /run/sshd
	ssh-keygen -q -t ed25519 -N '' -f "$work/host"
	ssh-keygen -q -t ed25519 -N '' -f "$work/user"
	printf '%s\n' "Port $port" 'ListenAddress 127.0.0.1' "HostKey $work/host" \
		"AuthorizedKeysFile $work/user.pub" "PidFile $work/story/pid" 'UsePAM no' 'StrictModes no' \
		'PermitRootLogin yes' >"$work/sshd"
	settings stories sshd
else
	skip 'sshd there is none here, or this is not root'
fi

# ---- Browsers ----
cat >"$work/page.html" <<'END'
<html><body><p id=p></p><script>
let all = [];
for (let i = 0; i < 300000; i++) all.push({x: i, y: "text " + i});
let big = new Uint8Array(40 << 20).fill(7);
document.getElementById("p").textContent = "objects " + all.length + " bytes " + big.reduce((a, b) => a + b, 0);
</script></body></html>
END
chmod 711 "$work"
chmod 644 "$work/page.html"

# Only that there is a picture: its bytes depend on the fonts.
cat >"$work/firefox" <<'END'
rm -rf "$1/home" "$1/shot.png" && mkdir "$1/home" && HOME=$1/home firefox-esr --headless --no-remote \
	--screenshot "$1/shot.png" "file://$1/page.html" >/dev/null 2>&1
echo "status $?" && test -s "$1/shot.png" && echo picture
END
if [ "$(id -u)" -eq 0 ]; then user='setpriv --reuid=65534 --regid=65534 --clear-groups'; else user=; fi
cat >"$work/chromium" <<'END'
export TMPDIR=$1/chromium.d
cd "$1/chromium.d" && rm -rf home && mkdir home && HOME=$1/chromium.d/home chromium --headless --disable-gpu \
	--no-first-run --user-data-dir="$1/chromium.d/home/data" --dump-dom "file://$1/page.html" 2>/dev/null |
	grep -o 'objects [0-9]* bytes [0-9]*<'
END
mkdir "$work/chromium.d" && chmod 777 "$work/chromium.d"
thresholds='65536 default'
settings compare_if firefox-esr firefox bash "$work/firefox" "$work"
settings compare_if chromium chromium $user bash "$work/chromium" "$work"
finish
