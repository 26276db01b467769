/* SPDX-License-Identifier: MIT */
/*
 * Uses: streams that may still work on memory that was freed. See the header.
 */
#include "cuda/uses.h"
#include "core/base/base.h"
#include "core/base/pool.h"
#include "cuda/stream.h"

static struct cow__pool uses = { .object_bytes = sizeof(struct cow__cuda_use) };

int
cow__cuda_uses_add(struct cow__cuda_use **list, struct cow__cuda *d,
                   struct cow__cu_stream *stream)
{
	struct cow__cuda_use *u;

	/* The stream of a marked use has ended. This is a new stream with its address. */
	for (u = *list; u; u = u->next)
		if (u->stream == stream && u->device == d && !u->marked)
			return 0;
	u = cow__pool_take(&uses);
	if (!u)
		return -ENOMEM;
	*u = (struct cow__cuda_use){ .next = *list, .device = d,
		                     .stream = stream };
	*list = u;
	return 0;
}

static int
mark_end(struct cow__cuda_use *u)
{
	int r;

	if (u->marked)
		return 0;
	if (u->mark)
		return -EBUSY; /* its stream may stay: try again later */
	if (cow__cuda_capturing(u->device, u->stream))
		return -EBUSY; /* a mark would become part of the graph */
	r = cow__cuda_mark(u->device, u->stream, &u->mark);
	if (r == 0)
		u->marked = true;
	return r;
}

/* Has the use passed? Its device is entered. */
static int
has_passed(struct cow__cuda_use *u)
{
	if (mark_end(u) < 0 || cow__cuda_passed(u->device, u->mark) != 1)
		return 0;
	cow__cuda_mark_free(u->device, u->mark);
	return 1;
}

int
cow__cuda_uses_end(struct cow__cuda_use *list, struct cow__cuda *d,
                   struct cow__cu_stream *stream, enum cow__cuda_end how)
{
	int r = 0;

	for (struct cow__cuda_use *u = list; u && r == 0; u = u->next) {
		if (u->stream != stream || u->device != d || u->marked)
			continue;
		if (how == COW__CUDA_ENDING) {
			r = cow__cuda_mark(d, stream, &u->mark);
		} else if (how == COW__CUDA_ENDED && u->mark) {
			u->marked = true;
		} else {
			cow__cuda_mark_free(d, u->mark);
			u->mark = NULL;
		}
	}
	return r;
}

int
cow__cuda_uses_passed(struct cow__cuda_use **list, struct cow__cuda *here)
{
	struct cow__cuda_use **p = list, *u;

	while ((u = *p) != NULL) {
		int passed;

		if (u->device != here && cow__cuda_enter(u->device) < 0)
			return 0;
		passed = has_passed(u);
		if (u->device != here)
			cow__cuda_leave(u->device);
		if (passed) {
			*p = u->next;
			cow__pool_give(&uses, u);
		} else {
			/* The others are marked, too, as early as possible. */
			p = &u->next;
		}
	}
	return *list == NULL;
}

void
cow__cuda_uses_drop(struct cow__cuda_use **list)
{
	for (struct cow__cuda_use *u = *list; u; u = u->next)
		cow__cuda_mark_free(u->device, u->mark);
	cow__cuda_uses_forget(list);
}

void
cow__cuda_uses_forget(struct cow__cuda_use **list)
{
	struct cow__cuda_use *u;

	while ((u = *list) != NULL) {
		*list = u->next;
		cow__pool_give(&uses, u);
	}
}
