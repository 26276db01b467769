#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Java: direct buffers and compression (both malloc's), threads, mapped files,
# child processes, with each garbage collector; and javac itself.
. "$(dirname "$0")/lib.sh"

cat >"$work/Buffers.java" <<'EOF'
import java.nio.*;
import java.nio.channels.FileChannel;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.*;
import java.util.stream.*;
import java.util.zip.*;

public class Buffers {
	static long sum(ByteBuffer b) {
		CRC32 crc = new CRC32();
		crc.update(b.duplicate().rewind());
		return crc.getValue();
	}

	static ByteBuffer direct(int bytes, long seed) {
		ByteBuffer b = ByteBuffer.allocateDirect(bytes);
		while (b.remaining() >= 8)
			if (b.getLong(b.position()) != 0)
				throw new Error("not zero");
			else
				b.putLong(seed = seed * 6364136223846793005L + 1);
		return b.rewind();
	}

	static long pack(int n) throws Exception {
		byte[] in = new byte[3_000_000], out = new byte[4_000_000];
		for (int i = 0; i < in.length; i++)
			in[i] = (byte)(i * n >> 7);
		Deflater d = new Deflater(n % 9 + 1);
		d.setInput(in);
		d.finish();
		int length = d.deflate(out);
		d.end();
		Inflater f = new Inflater();
		f.setInput(out, 0, length);
		byte[] back = new byte[in.length];
		if (f.inflate(back) != in.length || !Arrays.equals(in, back))
			throw new Error("zip");
		f.end();
		return sum(ByteBuffer.wrap(out, 0, length)) + length;
	}

	public static void main(String[] args) throws Exception {
		ExecutorService pool = Executors.newFixedThreadPool(4);
		List<Future<Long>> results = new ArrayList<>();
		for (int i = 1; i <= 60; i++) {
			int n = i;
			results.add(pool.submit(() -> sum(direct(n * 40_000 & ~7, n))));
			results.add(pool.submit(() -> pack(n)));
		}
		for (Future<Long> r : results)
			System.out.print(r.get() + " ");
		pool.shutdown();
		ByteBuffer large = direct(48 << 20, 1);
		Path file = Path.of(args[0], "java.data");
		try (FileChannel c = FileChannel.open(file, StandardOpenOption.CREATE,
				StandardOpenOption.READ, StandardOpenOption.WRITE,
				StandardOpenOption.TRUNCATE_EXISTING)) {
			c.write(large.duplicate());
			MappedByteBuffer m = c.map(FileChannel.MapMode.READ_WRITE, 0, c.size());
			m.putLong(4096, 42);
			m.force();
			System.out.println(sum(m) + " " + sum(large));
		}
		for (int i = 0; i < 3; i++) {
			Process p = new ProcessBuilder("cksum", file.toString()).start();
			System.out.print(new String(p.getInputStream().readAllBytes())
				.split(" ")[0] + " " + p.waitFor() + " ");
		}
		Map<String, List<Integer>> map = IntStream.range(0, 300_000).boxed()
			.parallel().collect(Collectors.groupingByConcurrent(
			i -> "k" + i % 5003));
		System.out.println(map.values().stream().mapToLong(l ->
			l.stream().mapToLong(x -> x).sum()).max().getAsLong());
		List<byte[]> garbage = new ArrayList<>();
		for (int i = 0; i < 3000; i++) {
			garbage.add(new byte[100_000]);
			if (garbage.size() > 300)
				garbage.subList(0, 200).clear();
		}
		System.out.println(garbage.size());
		System.exit(0);
	}
}
EOF
compare_if javac 'javac' bash -c 'javac -d "$1/classes" "$1/Buffers.java" &&
	cksum <"$1/classes/Buffers.class"' javac "$work"
for collector in Serial Parallel G1; do
	if [ -e "$work/classes" ]; then
		compare "java with $collector" java -XX:+Use${collector}GC -Xmx300m \
			-XX:ErrorFile="$work/java.log" \
			-cp "$work/classes" Buffers "$work"
	else
		skip "java with $collector no javac here"
	fi
done
finish
