/* SPDX-License-Identifier: MIT */
/*
 * gpu: device copies, the cache, sharing and lazy clones, against the driver's own calls
 *
 * This measures every row of the table of docs/gpu.md, in turns with plain calls of the
 * driver in one process. The rival is cuMemcpy*Async, or cuMemAllocAsync. The host takes
 * the time and waits for the work to end. The copies are large, so the wait adds little
 * to them. bench/gpu.sh runs this program, and bench/gpu.py for PyTorch.
 */
#include <cowshed-cuda.h>
#include <cowshed-share.h>

#include "bench/peer.h"
#include "cuda/abi.h"

#include <dlfcn.h>

/* The calls of the driver, by their exported names. */
#define CALL(need, member, name, symbol, version, parameters)                  \
	static enum cow__cu_result(*cu_##member) parameters;
#include "cuda/calls.h"
#undef CALL

static void load_driver(void)
{
	const char *name = getenv("COWSHED_CUDA_DRIVER");
	void *library = dlopen(name && *name ? name : "libcuda.so.1", RTLD_NOW);

	if (!library) {
		printf("gpu: there is no CUDA driver\n");
		exit(77);
	}
	if (dlsym(library, "cow_ref_set"))
		printf("# this is the reference driver of the tests: its figures mean nothing\n");
#define CALL(need, member, name, symbol, version, parameters)                  \
	cu_##member = (__typeof__(cu_##member))dlsym(library, #symbol);
#include "cuda/calls.h"
#undef CALL
}

static void cu(enum cow__cu_result r)
{
	if (r != COW_CU_SUCCESS)
		die("the driver returned %d", (int)r);
}

static struct cow_tensor *tensor(bool device, enum cow_dtype type, int dims, const int64_t *sizes)
{
	struct cow_tensor_options o = {
		.size = sizeof(o), .device = { device ? COW_DEVICE_CUDA : COW_DEVICE_CPU, 0 },
	};
	struct cow_tensor *t;

	must(cow_tensor_new(type, dims, sizes, &o, &t));
	if (!device) {
		void *p;

		must(cow_tensor_data_mut(t, COW_WRITE_ALL, &p));
		memset(p, 1, (size_t)cow_tensor_numel(t) * cow_dtype_bytes(type));
	}
	return t;
}

static struct cow_tensor *bytes(bool device, size_t n)
{
	return tensor(device, COW_UINT8, 1, (const int64_t[]){ (int64_t)n });
}

static cow__cu_ptr at(struct cow_tensor *t)
{
	return (uintptr_t)cow_storage_data(cow_tensor_storage(t));
}

static void drain(void)
{
	cu(cu_ctx_synchronize());
}

/* ---- Copies ---------------------------------------------------------------- */

/* A copy of ours against a plain copy of `n` bytes by the driver. */
static void against_plain(const char *name, struct cow_tensor *to, struct cow_tensor *from,
                          size_t n, double bar)
{
	struct cow_tensor *a = bytes(true, n), *b = bytes(true, n);
	struct series ours = { .n = 0 }, rival = { .n = 0 };

	for (int i = 0; i < rounds(21) + 2; i++) {
		double t = now_ns();

		warming_up = i < 2; /* the first two rounds load and map */
		must(cow_tensor_copy(to, from, 0));
		drain();
		series_add(&ours, us_since(t));
		t = now_ns();
		cu(cu_copy_within(at(b), at(a), n, NULL));
		drain();
		series_add(&rival, us_since(t));
	}
	report(name, "us", &ours, &rival, BAR_SPEEDUP, bar);
	cow_tensor_unref(a);
	cow_tensor_unref(b);
	cow_tensor_unref(to);
	cow_tensor_unref(from);
}

static void host(size_t n, bool to_device)
{
	struct cow_tensor *a = bytes(true, n), *h = bytes(false, n);
	struct series ours = { .n = 0 }, rival = { .n = 0 };
	void *pinned;

	cu(cu_host_alloc(&pinned, n, 0));
	memset(pinned, 1, n);
	for (int i = 0; i < rounds(11) + 2; i++) {
		double t = now_ns();

		warming_up = i < 2;
		must(to_device ? cow_tensor_copy(a, h, 0) : cow_tensor_copy(h, a, 0));
		series_add(&ours, us_since(t));
		t = now_ns();
		cu(to_device ? cu_copy_to_device(at(a), pinned, n, NULL)
		             : cu_copy_to_host(pinned, at(a), n, NULL));
		drain();
		series_add(&rival, us_since(t));
	}
	report(to_device ? "pageable-to-device-vs-pinned" : "device-to-pageable-vs-pinned",
	       "us", &ours, &rival, BAR_SPEEDUP, 0.85);
	cu(cu_host_free(pinned));
	cow_tensor_unref(a);
	cow_tensor_unref(h);
}

/* The rival is a plain copy that moves as many bytes in all. */
static void strided(const char *name, struct cow_tensor *to, struct cow_tensor *from)
{
	size_t both = cow_dtype_bytes(cow_tensor_dtype(to)) +
	              cow_dtype_bytes(cow_tensor_dtype(from));

	against_plain(name, to, from, (size_t)cow_tensor_numel(from) * both / 2, 0.85);
}

static struct cow_tensor *permuted(struct cow_tensor *t, const int *order)
{
	struct cow_tensor *r;

	must(cow_tensor_permute(t, order, &r));
	cow_tensor_unref(t);
	return r;
}

static void all_strided(int64_t side)
{
	static const struct {
		const char *name;
		enum cow_dtype to, from;
	} casts[] = {
		{ "cast-float32-bfloat16", COW_BFLOAT16, COW_FLOAT32 },
		{ "cast-bfloat16-float32", COW_FLOAT32, COW_BFLOAT16 },
		{ "cast-float32-float16", COW_FLOAT16, COW_FLOAT32 },
		{ "cast-uint8-float32", COW_FLOAT32, COW_UINT8 },
		{ "cast-int64-int32", COW_INT32, COW_INT64 },
		{ "cast-float32-float8_e4m3fn", COW_FLOAT8_E4M3FN, COW_FLOAT32 },
	};
	static const struct {
		const char *name;
		enum cow_dtype type;
	} turns[] = {
		{ "transpose-uint8", COW_UINT8 },   { "transpose-float16", COW_FLOAT16 },
		{ "transpose-float32", COW_FLOAT32 }, { "transpose-float64", COW_FLOAT64 },
	};
	const int64_t square[] = { side, side }, nchw[] = { 32, 128, side / 64, side / 64 };
	const int64_t wide[] = { side, 2 * side };
	const int flipped[] = { 1, 0 }, to_last[] = { 0, 2, 3, 1 };
	struct cow_tensor *t;

	for (size_t i = 0; i < COUNT_OF(casts); i++)
		strided(casts[i].name, tensor(true, casts[i].to, 2, square),
		        tensor(true, casts[i].from, 2, square));
	for (size_t i = 0; i < COUNT_OF(turns); i++)
		strided(turns[i].name, tensor(true, turns[i].type, 2, square),
		        permuted(tensor(true, turns[i].type, 2, square), flipped));
	t = permuted(tensor(true, COW_FLOAT32, 4, nchw), to_last);
	strided("nchw-to-nhwc-float32", tensor(true, COW_FLOAT32, 4, cow_tensor_sizes(t)), t);
	strided("transpose-cast-float32-bfloat16", tensor(true, COW_BFLOAT16, 2, square),
	        permuted(tensor(true, COW_FLOAT32, 2, square), flipped));
	must(cow_tensor_slice(tensor(true, COW_FLOAT32, 2, wide), 1, 3, 3 + side, 1, &t));
	strided("columns-float32", tensor(true, COW_FLOAT32, 2, square), t);
}

/* ---- Memory ------------------------------------------------------------------ */

static void allocation(void)
{
	enum { TIMES = 1000 };
	struct series ours = { .n = 0 }, rival = { .n = 0 };

	for (int i = 0; i < rounds(31) + 1; i++) {
		double t = now_ns();

		warming_up = !i;
		for (int k = 0; k < TIMES; k++) {
			struct cow_storage *s;

			must(cow_cuda_storage_new(0, 4 * MIB, NULL, &s));
			cow_storage_unref(s);
		}
		series_add(&ours, us_since(t) / TIMES);
		t = now_ns();
		for (int k = 0; k < TIMES && cu_mem_alloc_async; k++) {
			cow__cu_ptr p;

			if (cu_mem_alloc_async(&p, 4 * MIB, NULL) != COW_CU_SUCCESS)
				break;
			cu(cu_mem_free_async(p, NULL));
		}
		series_add(&rival, us_since(t) / TIMES);
	}
	report("allocate-free-4MiB", "us", &ours, &rival, BAR_OURS, 1);
}

static size_t free_bytes(void)
{
	size_t now, total;

	cu(cu_mem_get_info(&now, &total));
	return now;
}

static void clones(size_t n)
{
	struct cow_cuda_options o = { .size = sizeof(o), .backing = COW_CUDA_PIECES };
	struct series clone = { .n = 0 }, write = { .n = 0 }, copy = { .n = 0 }, grown = { .n = 0 };
	struct cow_storage *s, *c;
	struct cow_tensor *other = bytes(true, n);
	int r = cow_cuda_storage_new(0, n, &o, &s);

	if (r < 0) {
		printf("# lazy clones: %s\n", cow_last_error());
		cow_tensor_unref(other);
		return;
	}
	for (int i = 0; i < rounds(11) + 1; i++) {
		size_t before;
		double t = now_ns();
		void *p;

		warming_up = !i;
		must(cow_storage_clone(s, &c));
		series_add(&clone, us_since(t));
		before = free_bytes();
		t = now_ns();
		must(cow_storage_data_mut_range(c, n / 2, 1, COW_WRITE_AUTO, &p));
		drain();
		series_add(&write, us_since(t));
		series_add(&grown, ((double)before - (double)free_bytes()) / MIB);
		t = now_ns();
		cu(cu_copy_within(at(other), (uintptr_t)cow_storage_data(s), n, NULL));
		drain();
		series_add(&copy, us_since(t));
		cow_storage_unref(c);
	}
	report("lazy-clone", "us", &clone, NULL, BAR_OURS, 1);
	report("write-one-granule-vs-full-copy", "us", &write, &copy, BAR_SPEEDUP, 1);
	report("memory-of-one-granule", "MiB", &grown, NULL, BAR_OURS, 2);
	cow_storage_unref(s);
	cow_tensor_unref(other);
}

/* ---- Sharing -------------------------------------------------------------------- */

/* Sends each storage back as soon as it was received: a round is there and back. */
static void echo(int socket)
{
	struct cow_channel *c;

	must(cow_cuda_start());
	must(cow_channel_new(socket, NULL, 0, &c));
	for (;;) {
		struct cow_parcel p = { .storage = NULL };

		if (cow_channel_receive(c, &p, 1, NULL, 0, NULL) < 1)
			_exit(0);
		if (cow_channel_send(c, &p, 1, NULL, 0) < 1)
			_exit(1);
		cow_storage_unref(p.storage);
	}
}

static void sharing(struct cow_channel *c, size_t n)
{
	struct cow_cuda_options o = { .size = sizeof(o), .backing = COW_CUDA_SINGLE };
	struct series ours = { .n = 0 };

	for (int i = 0; i < rounds(21) + 2; i++) {
		struct cow_parcel p = { .mode = COW_SHARE_ALIAS, .length = n };
		struct cow_storage *s;
		double t;

		warming_up = i < 2;
		must(cow_cuda_storage_new(0, n, &o, &s));
		drain();
		t = now_ns();
		p.storage = s;
		if (cow_channel_send(c, &p, 1, NULL, 0) < 1 ||
		    cow_channel_receive(c, &p, 1, NULL, 0, NULL) < 1) {
			printf("# sharing: %s\n", cow_last_error());
			cow_storage_unref(s);
			return;
		}
		series_add(&ours, us_since(t) / 2);
		cow_storage_unref(p.storage);
		cow_storage_unref(s);
	}
	report(named("share-%s-one-way", size_name(n)), "us", &ours, NULL, BAR_OURS, 200);
}

int main(void)
{
	struct cow_cuda_device_info d = { .size = sizeof(d) };
	struct cow_cuda_info info = { .size = sizeof(info) };
	struct cow__cu_context *context;
	struct cow_channel *c;
	size_t large = sized(512 * MIB);
	struct peer p;

	/* The fork comes before CUDA is started: a child can't use its parent's. */
	if (!peer_fork(&p))
		echo(p.data);
	if (cow_cuda_start() < 0) {
		printf("gpu: %s\n", cow_last_error());
		return 77;
	}
	load_driver();
	must(cow_cuda_info(&info));
	must(cow_cuda_device_info(0, &d));
	printf("# %s, sm_%d%d, %.0f GiB, kernels: %s\n", d.name, d.capability_major,
	       d.capability_minor, (double)d.memory_bytes / (double)GIB,
	       info.kernels ? "yes" : "no");
	cu(cu_primary_retain(&context, 0));
	cu(cu_ctx_set_current(context));
	against_plain("contiguous", bytes(true, large), bytes(true, large), large, 0.97);
	host(large, true);
	host(large, false);
	all_strided(quick() ? 1024 : 8192);
	allocation();
	clones(quick() ? 64 * MIB : 8 * GIB);
	must(cow_channel_new(p.data, NULL, 0, &c));
	sharing(c, 2 * MIB);
	sharing(c, sized(1 * GIB));
	cow_channel_free(c);
	close(p.data);
	waitpid(p.pid, NULL, 0);
	return 0;
}
