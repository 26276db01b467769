#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Browsers with their sandboxes, offices, editors, pictures, films, and a machine inside of one.
. "$(dirname "$0")/lib.sh"

# ---- Browsers ----
cat >"$work/page.html" <<'END'
<html><body><p id=p></p><canvas id=c width=1500 height=1500></canvas><script>
let all = [], h = 0;
for (let i = 0; i < 300000; i++) all.push({x: i, y: "text " + i});
all.sort((a, b) => (a.x * 7919 % 100003) - (b.x * 7919 % 100003));
let big = new Uint8Array(40 << 20).fill(7);
for (let i = 0; i < big.length; i += 997) h = (h * 31 + big[i] + i) % 1000003;
let g = document.getElementById("c").getContext("2d");
for (let i = 0; i < 1500; i++) { g.fillStyle = "rgb(" + i % 256 + ",9,99)"; g.fillRect(i, 0, 1, 1500); }
let d = g.getImageData(0, 0, 1500, 1500).data;
for (let i = 0; i < d.length; i += 101) h = (h * 31 + d[i]) % 1000003;
document.getElementById("p").textContent = "objects " + all.length + " " + all[777].y + " hash " + h + ".";
</script></body></html>
END
chmod 644 "$work/page.html"
# The picture's bytes depend on fonts alone, so they are the same on each side.
story() {
	"$@" firefox-esr --headless --no-remote --window-size 800,600 --screenshot "$work/story/shot.png" "file://$work/page.html" >"$work/story/log" 2>&1
	echo "status $?" && cksum <"$work/story/shot.png"
}
tell firefox firefox-esr
chromium_story() {
	chmod 777 "$HOME"
	"$@" $nobody env TMPDIR="$work/story" chromium --headless --disable-gpu --no-first-run --user-data-dir="$work/story/data" \
		"${flags[@]}" --dump-dom "file://$work/page.html" 2>"$work/story/log" | grep -o 'objects [^.<]*[.]'
	echo "status ${PIPESTATUS[0]}"
	grep -c 'SIGSYS\|Received signal' "$work/story/log"
	return 0
}
story() { chromium_story "$@"; }
flags=() && tell chromium chromium
flags=(--no-zygote --no-sandbox) && tell chromium-no-zygote chromium

# ---- Offices and editors ----
awk 'BEGIN { print "key,text,number"; for (i = 0; i < 12000; i++) print i * 7919 % 1009 ",text " i "," i * i % 977 }' >"$work/a.csv"
story() {
	"$@" soffice -env:UserInstallation="file://$work/story/profile" --headless --convert-to xlsx --outdir "$work/story" "$work/a.csv" >"$work/story/log" 2>&1
	echo "status $?"
	"$@" soffice -env:UserInstallation="file://$work/story/profile" --headless --convert-to csv --outdir "$work/story" "$work/story/a.xlsx" >"$work/story/log" 2>&1
	echo "status $?" && cksum <"$work/story/a.csv"
}
tell libreoffice-calc soffice
story() {
	sed 's/,/ /g' "$work/a.csv" | head -n 2500 >"$work/story/a.txt"
	"$@" soffice -env:UserInstallation="file://$work/story/profile" --headless --convert-to odt --outdir "$work/story" "$work/story/a.txt" >"$work/story/log" 2>&1
	echo "status $?" && python3 -c 'import sys, zipfile; print(zipfile.ZipFile(sys.argv[1]).read("content.xml").count(b"text "))' "$work/story/a.odt"
	"$@" soffice -env:UserInstallation="file://$work/story/profile" --headless --convert-to pdf --outdir "$work/story" "$work/story/a.odt" >"$work/story/log" 2>&1
	echo "status $?" && grep -ac '/Type */Page' "$work/story/a.pdf"
}
tell libreoffice-writer 'soffice python3'
printf '%s\n' '(find-file (pop command-line-args-left))' '(while (re-search-forward "text \\([0-9]+\\)" nil t) (replace-match "\\1 word"))' \
	'(sort-lines nil (point-min) (point-max))' '(message "%s %d" (secure-hash (quote md5) (current-buffer)) (buffer-size))' \
	'(let ((l nil)) (dotimes (i 500000) (push (format "%d" i) l)) (garbage-collect) (message "%d" (length (mapconcat #'"'"'identity l ""))))' \
	'(message "%s" (shell-command-to-string "echo a child"))' >"$work/a.el"
beside emacs emacs bash -c 'emacs --batch -Q -l "$1" "$2" 2>&1' emacs "$work/a.el" "$work/a.csv"
story() {
	for i in 1 2 3 4 5 6 7 8 9 10; do cat "$work/a.csv"; done >"$work/story/a"
	"$@" vi -u NONE -es -c '%s/text \(\d\+\)/\1 word/' -c '%!sort' -c 'g/ 7/normal dd' -c 'undo' -c wq "$work/story/a" </dev/null
	echo "status $?" && cksum <"$work/story/a"
}
tell vim vi
story() {
	"$@" tmux -S "$work/story/sock" -f /dev/null new-session -d -x 100 -y 40 "cat $work/a.csv; echo done; sleep 60" || return
	"$@" tmux -S "$work/story/sock" set -g history-limit 30000
	for i in 1 2 3; do "$@" tmux -S "$work/story/sock" new-window -d "seq 40000; sleep 60"; done
	until_true sh -c "tmux -S $work/story/sock capture-pane -p -t :0 | grep -q done"
	for i in 1 2 3; do
		until_true sh -c "tmux -S $work/story/sock capture-pane -p -t :$i | grep -q 40000"
		"$@" tmux -S "$work/story/sock" capture-pane -p -S -20000 -t ":$i" | cksum
	done
	"$@" tmux -S "$work/story/sock" kill-server
}
tell tmux tmux

# ---- Pictures, films, sound, paper ----
convert=$(command -v convert-im6.q16 convert | head -n 1)
beside imagemagick "$(basename "${convert:-convert}")" bash -c 'cd "$TMPDIR" && "$1" -limit thread 2 -size 1600x1200 plasma:fractal -seed 3 -resize 50% -blur 0x3 \
	-rotate 13 -colorspace Gray -depth 8 -format "%wx%h\n" info: && "$1" -limit thread 2 -size 2000x1500 gradient:red-blue -swirl 90 -blur 0x4 -resize 1333x \
	-depth 8 rgb:- | cksum' im "$convert"
beside graphicsmagick gm bash -c 'gm convert -size 2000x1500 gradient:red-blue -swirl 90 -blur 0x4 -resize 1333x -depth 8 rgb:- | cksum'
beside ffmpeg ffmpeg bash -c 'ffmpeg -nostdin -v error -f lavfi -i testsrc2=size=1280x720:rate=25:duration=2 -f lavfi -i sine=440:duration=2 -threads 2 \
	-c:v mpeg4 -q:v 4 -c:a flac -flags bitexact -fflags bitexact -f matroska - | tee >(cksum >&2) | ffmpeg -nostdin -v error -i - -threads 2 -vf scale=640:-1 -f framemd5 - | cksum'
beside ffmpeg-x264 ffmpeg ffmpeg -nostdin -v error -f lavfi -i testsrc2=size=960x540:rate=25:duration=1 -threads 2 -c:v libx264 -preset fast -f framemd5 -
beside sox sox bash -c 'sox -n -r 48000 -c 2 -t wav - synth 40 pluck C4 reverb pitch 300 2>/dev/null | sox -t wav - -n stat 2>&1 | head -n 5; sox -R -D -n -r 44100 -b 16 -t raw - synth 20 sine 300-3000 flanger tempo 1.3 | cksum'
printf '%s\n' '%!PS' '/a 40000 array def 0 1 39999 { dup a exch dup 7919 mul 100003 mod put pop } for' '1 1 12 { /n exch def' \
	'0 1 2500 { /i exch def i 7 mul 600 mod i 13 mul 800 mod moveto n 3 mul i 31 mod rlineto i 10 mod 10 div setgray stroke } for' \
	'/Times-Roman findfont 20 scalefont setfont 100 n 50 mul moveto (page ) show n 10 string cvs show showpage } for' >"$work/a.ps"
beside ghostscript gs bash -c 'gs -q -dSAFER -dBATCH -dNOPAUSE -sDEVICE=ppmraw -r110 -sOutputFile=- "$1" | cksum; gs -q -dSAFER -dBATCH -dNOPAUSE -sDEVICE=pdfwrite \
	-sOutputFile="$TMPDIR/gs.pdf" "$1" && pdftotext "$TMPDIR/gs.pdf" - && pdftoppm -r 60 "$TMPDIR/gs.pdf" | cksum' gs "$work/a.ps"
printf '%s\n' 'set terminal svg size 900,700' 'set samples 20000' 'set isosamples 30' 'plot sin(x) * x, besj0(x)' 'set samples 60' 'splot x * x * sin(y), cos(x) * y' \
	'set samples 500' 'set dgrid3d 30,30' "splot '-' using 1:2:3 with lines" >"$work/a.gnuplot"
awk 'BEGIN { for (i = 0; i < 600; i++) print i * 7919 % 97, i * 31 % 89, i % 13; print "e" }' >>"$work/a.gnuplot"
beside gnuplot gnuplot bash -c 'gnuplot "$1" | cksum' gnuplot "$work/a.gnuplot"

# ---- A machine: a boot sector that counts, writes to the serial port, and ends the machine ----
python3 - "$work/boot" <<'END'
import sys
code = bytes.fromhex(
    "fa31c08ed8"                # cli; ds = 0
    "b80020" "8ec0"             # es = 0x2000
    "be4000"                    # 64 rounds
    "31ff" "b90080" "89f0" "f3ab"  # fill 64 KiB
    "8cc0" "0500" "10" "80fc90" "7203" "b80020" "8ec0"  # the next segment, below 0x9000
    "4e" "75e5"
    "baf803" "b048" "ee" "b049" "ee" "b00a" "ee"  # "HI\n"
    "baf400" "b003" "ee" "f4ebfd")  # isa-debug-exit: status 7
open(sys.argv[1], "wb").write(code.ljust(510, b"\0") + b"\x55\xaa")
END
story() {
	"$@" qemu-system-x86_64 -accel tcg -m 256 -display none -nodefaults -serial stdio -device isa-debug-exit,iobase=0xf4,iosize=4 \
		-drive file="$work/boot",format=raw,if=floppy -boot a -mem-prealloc
	echo "status $?"
}
tell qemu 'qemu-system-x86_64 python3'
finish
