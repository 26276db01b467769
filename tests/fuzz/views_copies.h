/* SPDX-License-Identifier: MIT */
/*
 * The second half of fuzz_views.c: what writes
 */

/* ---- Copies -------------------------------------------------------------------------- */

/* Marks the bytes of a tensor. False: one was marked already. */
static bool mark(const struct naive_view *v, unsigned char *marks)
{
	size_t item = cow_dtype_bytes(v->dtype);
	int64_t n = naive_numel(v);
	bool once = true;

	for (int64_t i = 0; i < n; i++) {
		unsigned char *m = marks + (size_t)naive_nth(v, i) * item;

		for (size_t k = 0; k < item; k++)
			once = once && !m[k];
		memset(m, 1, item);
	}
	return once;
}

static bool same_places(const struct naive_view *a, const struct naive_view *b)
{
	int64_t n = naive_numel(a);

	if (a->dtype != b->dtype || naive_numel(b) != n)
		return false;
	for (int64_t i = 0; i < n; i++)
		if (naive_nth(a, i) != naive_nth(b, i))
			return false;
	return true;
}

/* The source with the sizes of the destination. False: does not go there. */
static bool broadcast(const struct naive_view *to, const struct naive_view *from,
                      struct naive_view *ret)
{
	int extra = to->dims - from->dims;

	*ret = *from;
	ret->dims = to->dims;
	memcpy(ret->sizes, to->sizes, sizeof(ret->sizes));
	for (int i = extra < 0 ? extra : 0; i < 0; i++)
		if (from->sizes[i - extra] != 1)
			return false;
	for (int i = 0; i < to->dims; i++) {
		int64_t had = i < extra ? 1 : from->sizes[i - extra];

		if (had != 1 && had != to->sizes[i])
			return false;
		ret->strides[i] = had == 1 ? 0 : from->strides[i - extra];
	}
	return true;
}

/* All is read before anything is written. */
static void model_copy(const struct tensor *to, const struct naive_view *from,
                       const struct storage *from_on)
{
	size_t a = cow_dtype_bytes(to->view.dtype), b = cow_dtype_bytes(from->dtype);
	int64_t n = naive_numel(&to->view);
	unsigned char *all = malloc((size_t)n * 16 + 1);

	naive_must(all != NULL);
	for (int64_t i = 0; i < n; i++) {
		unsigned char *e = all + 16 * i;

		memcpy(e, from_on->bytes + (size_t)naive_nth(from, i) * b, b);
		naive_convert(&to->view, from, e);
	}
	for (int64_t i = 0; i < n; i++)
		memcpy(to->on->bytes + (size_t)naive_nth(&to->view, i) * a, all + 16 * i, a);
	free(all);
}

static void copy(void)
{
	const struct tensor *to = pick(), *from = pick();
	uint32_t flags = take(2) ? COW_COPY_LAZY : 0;
	bool goes, once, meet = false, same, nothing;
	struct naive_view source;
	unsigned char *marks;
	int r;

	if (!affordable(to))
		return;
	goes = broadcast(&to->view, &from->view, &source);
	r = cow_tensor_copy(to->is, from->is, flags);
	if (!goes) {
		naive_must(r == -EINVAL);
		return;
	}
	if (naive_numel(&to->view) == 0) {
		naive_must(r == 0);
		return;
	}
	marks = calloc(1, to->on->count + 1);
	naive_must(marks != NULL);
	once = mark(&to->view, marks);
	same = to->on == from->on && same_places(&to->view, &source);
	nothing = same && to->view.conj == source.conj && to->view.neg == source.neg;
	if (to->on == from->on) {
		size_t item = cow_dtype_bytes(source.dtype);

		for (int64_t i = 0; i < naive_numel(&source) && !meet; i++)
			meet = memchr(marks + (size_t)naive_nth(&source, i) * item, 1,
			              item) != NULL;
	}
	free(marks);
	if (r == 0) {
		naive_must((once && (!meet || same)) || nothing);
		if (!nothing)
			model_copy(to, &source, from->on);
		return;
	}
	/* Errs towards refusing; but not where it is easy to see. */
	naive_must(r == -EINVAL && !(nothing && once));
	naive_must(!once || meet || to->on == from->on || !cow_tensor_is_dense(to->is));
}

static void fill(void)
{
	const struct tensor *t = pick();
	struct storage value = { .count = 16 };
	struct naive_view one = { .dtype = some_type() }, source;
	unsigned char e[16];

	if (!affordable(t))
		return;
	for (int i = 0; i < 16; i++)
		e[i] = (unsigned char)take(256);
	if (one.dtype == COW_BOOL)
		e[0] &= 1;
	naive_must(cow_tensor_fill(t->is, one.dtype, e) == 0);
	value.bytes = e;
	naive_must(broadcast(&t->view, &one, &source));
	model_copy(t, &source, &value);
}

static enum cow_format some_format(const struct naive_view *v)
{
	switch (take(4)) {
	case 1:
		return COW_FORMAT_CONTIGUOUS;
	case 2:
		return v->dims == 4   ? COW_FORMAT_CHANNELS_LAST
		       : v->dims == 5 ? COW_FORMAT_CHANNELS_LAST_3D
		                      : COW_FORMAT_CONTIGUOUS;
	default:
		return COW_FORMAT_PRESERVE;
	}
}

static void fresh(unsigned how)
{
	const struct tensor *t = pick();
	struct cow_to to = { .size = sizeof(to), .dtype = -1 };
	uint32_t flags = take(2) ? COW_COPY_LAZY : 0;
	enum cow_format format;
	struct cow_tensor *is;
	bool dense, conj, neg;

	if (!affordable(t))
		return;
	format = some_format(&t->view);
	dense = cow_tensor_is_dense(t->is);
	conj = t->view.conj;
	neg = t->view.neg;
	switch (how) {
	case 0:
		naive_must(cow_tensor_clone(t->is, format, &is) == 0);
		break;
	case 1:
		naive_must(cow_tensor_lazy_clone(t->is, &is) == 0);
		break;
	case 2:
		naive_must(cow_tensor_contiguous(t->is, format, flags, &is) == 0);
		break;
	default:
		to.dtype = take(2) ? (int32_t)some_type() : -1;
		to.copy = take(2);
		to.format = format;
		to.flags = flags;
		naive_must(cow_tensor_to(t->is, &to, &is) == 0);
		naive_must(to.dtype < 0 || (int32_t)cow_tensor_dtype(is) == to.dtype);
	}
	naive_must(how == 3 || (cow_tensor_is_conj(is) == conj &&
	                        cow_tensor_is_neg(is) == neg));
	if (format == COW_FORMAT_PRESERVE || how == 1)
		naive_must(!dense || cow_tensor_is_dense(is));
	else
		naive_must(cow_tensor_is_contiguous(is, format));
	naive_must(how == 2 || how == 3 ||
	           cow_tensor_storage(is) != cow_tensor_storage(t->is));
	check_result(t, is);
}

/* ---- Reading, and writing past the tensors -------------------------------------------------- */

static bool model_equal(const struct tensor *a, const struct tensor *b)
{
	struct naive_view x = a->view, y = b->view;
	size_t item = cow_dtype_bytes(x.dtype);
	bool floats = cow_dtype_is_floating(x.dtype) || cow_dtype_is_complex(x.dtype);

	if (x.dtype != y.dtype || x.dims != y.dims ||
	    memcmp(x.sizes, y.sizes, (size_t)x.dims * sizeof(int64_t)) != 0)
		return false;
	for (int64_t i = 0; i < naive_numel(&x); i++) {
		unsigned char e[16] = { 0 }, f[16] = { 0 };
		struct naive_value v, w;

		memcpy(e, a->on->bytes + (size_t)naive_nth(&x, i) * item, item);
		memcpy(f, b->on->bytes + (size_t)naive_nth(&y, i) * item, item);
		naive_bits(x.dtype, x.conj, x.neg, e);
		naive_bits(y.dtype, y.conj, y.neg, f);
		v = naive_load(x.dtype, e);
		w = naive_load(x.dtype, f);
		if (floats ? !(v.re.d == w.re.d && v.im.d == w.im.d) : v.bits != w.bits)
			return false;
	}
	return true;
}

static void equal(void)
{
	const struct tensor *a = pick(), *b = pick();

	if (affordable(a) && affordable(b))
		naive_must(cow_tensor_equal(a->is, b->is) == model_equal(a, b));
}

static void print(void)
{
	const struct tensor *t = pick();
	char text[64], *all;
	long n;

	if (!t || naive_numel(&t->view) > 512)
		return;
	n = cow_tensor_print(t->is, 0, text, sizeof(text));
	naive_must(n >= 0 && strlen(text) == (size_t)(n < 63 ? n : 63));
	all = malloc((size_t)n + 1);
	naive_must(all && cow_tensor_print(t->is, 0, all, (size_t)n + 1) == n);
	naive_must((long)strlen(all) == n && strncmp(all, text, 63) == 0);
	free(all);
}

/* Some bytes of a storage, by its tensor or by an address that was given away. */
static void poke(bool expose)
{
	const struct tensor *t = pick();
	struct storage *s = t ? t->on : NULL;
	size_t from, bytes;
	void *data;

	if (!s || !s->count)
		return;
	if (expose && !s->exposed) {
		naive_must(cow_storage_expose(s->is, &data) == 0);
		s->exposed = data;
	}
	from = (take(256) * s->count) >> 8;
	bytes = 1 + take(64) * s->count / 256;
	if (bytes > s->count - from)
		bytes = s->count - from;
	data = s->exposed;
	if (!data)
		naive_must(cow_storage_data_mut_range(s->is, from, bytes,
		                                      (enum cow_write_hint)take(COW_WRITE_BY_COPY + 1),
		                                      &data) == 0);
	for (size_t i = from; i < from + bytes; i++)
		((unsigned char *)data)[i] = s->bytes[i] = next() & 1;
}

/* `kind`: 1 to 8. */
static void make_view(unsigned kind)
{
	switch (kind) {
	case 1:
		slice();
		break;
	case 2:
		select_one();
		break;
	case 3:
		permute();
		break;
	case 4:
		expand();
		break;
	case 5:
		reshape();
		break;
	case 6:
		as_strided();
		break;
	case 7:
		flip(true);
		break;
	default:
		flip(false);
	}
}

static void step(void)
{
	unsigned what = take(20);

	switch (what) {
	case 0:
		create();
		break;
	case 9:
	case 10:
	case 11:
	case 12:
		fresh(what - 9);
		break;
	case 13:
		fill();
		break;
	case 14:
		equal();
		break;
	case 15:
		drop(&tensors[take(TENSORS)]);
		break;
	case 16:
		poke(take(4) == 3);
		break;
	case 17:
		print();
		break;
	case 18:
	case 19:
		copy();
		break;
	default:
		make_view(what);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct cow_stats before = { .size = sizeof(before) }, after = before;

	at = data;
	end = data + size;
	seed = 88172645463325252u;
	work = 0;
	naive_must(cow_stats_get(&before) == 0);
	create();
	for (int i = 0; i < STEPS && at < end; i++) {
		step();
		for (struct storage *s = storages; s < storages + STORAGES; s++)
			if (s->refs && s->count <= SMALL)
				compare(s);
	}
	for (int i = 0; i < TENSORS; i++)
		drop(&tensors[i]);
	naive_must(cow_stats_get(&after) == 0);
	naive_must(after.storages_live == before.storages_live);
	return 0;
}
