#!/bin/bash
# SPDX-License-Identifier: MIT
#
# node: buffers (which are malloc's), workers that share and transfer them,
# compression in libuv's threads, children.
. "$(dirname "$0")/lib.sh"

cat >"$work/buffers.js" <<'EOF'
const crypto = require('crypto'), zlib = require('zlib'), fs = require('fs');
const { spawnSync, fork } = require('child_process');
const { Worker, isMainThread, parentPort } = require('worker_threads');
const sum = b => crypto.createHash('sha256').update(b).digest('hex');

function pattern(bytes, seed) {
	const words = new Uint32Array(bytes / 4);
	for (let i = 0, x = seed; i < words.length; i++)
		words[i] = (x = Math.imul(x, 1664525) + 1013904223) >>> (i % 3 ? 9 : 25);
	return Buffer.from(words.buffer);
}

async function work() {
	const large = pattern(24 << 20, 1), parts = [];
	for (let i = 0; i < 200; i++)
		parts.push(pattern(4096 * (i + 1) % 800000 & ~3, i));
	console.log(sum(large), sum(Buffer.concat(parts)));
	for (let i = 0; i < 50; i++) {
		const b = Buffer.alloc((1 << 20) + i % 3);
		if (b.some(x => x != 0)) console.log('not zero');
		b.fill(i);
		parts[i] = b;
	}
	console.log(sum(Buffer.concat(parts)));
	const packed = await Promise.all([1, 3].map(l => new Promise((yes, no) =>
		zlib.deflate(large, { level: l }, (e, r) => e ? no(e) : yes(r)))));
	for (const p of packed)
		console.log(p.length, sum(zlib.inflateSync(p)));
	console.log(sum(zlib.brotliCompressSync(large.subarray(0, 200000))));

	const file = process.argv[2] + '/node.data';
	fs.writeFileSync(file, large);
	console.log(sum(await fs.promises.readFile(file)));
	console.log(spawnSync('cksum', { input: large }).stdout.toString());

	const shared = new SharedArrayBuffer(4 << 20), answers = [];
	await Promise.all([0, 1, 2].map(n => new Promise(done => {
		const w = new Worker(__filename, { argv: process.argv.slice(2) });
		const mine = pattern(3 << 20, n + 7).buffer;
		w.on('message', m => { answers[n] = sum(Buffer.from(m)); });
		w.on('exit', done);
		w.postMessage({ n, shared, mine }, [mine]);
	})));
	console.log(answers, Atomics.load(new Int32Array(shared), 5));

	let text = JSON.stringify(Array.from({ length: 60000 },
		(_, i) => ({ i, name: 'n' + i * 7919 % 10007, list: [i, i * 2] })));
	const back = JSON.parse(text).sort((a, b) =>
		a.name < b.name ? -1 : a.name > b.name ? 1 : a.i - b.i);
	console.log(text.length, back[100], text.replace(/n(\d+)/g, '$1n').length);
	await new Promise(done => {
		const child = fork(__filename, ['child'], { serialization: 'advanced' });
		child.on('message', m => console.log('child', sum(m)));
		child.on('exit', done);
		child.send(large.subarray(0, 5 << 20));
	});
}

if (!isMainThread)
	parentPort.once('message', ({ n, shared, mine }) => {
		const counts = new Int32Array(shared), bytes = new Uint8Array(mine);
		for (let i = 0; i < counts.length; i++)
			Atomics.add(counts, i, n + 1);
		for (let i = 0; i < bytes.length; i += 512)
			bytes[i] ^= n;
		parentPort.postMessage(mine, [mine]);
	});
else if (process.argv[2] == 'child')
	process.once('message', m => {
		m = Buffer.from(m);
		m.fill('c', 1 << 20, 2 << 20);
		process.send(m, () => process.exit(0));
	});
else
	work().then(() => process.exit(0));
EOF
compare_if node 'node' node "$work/buffers.js" "$work"
compare_if node 'node, a small heap' node --max-old-space-size=200 \
	--max-semi-space-size=1 "$work/buffers.js" "$work"
finish
