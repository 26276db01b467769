/* SPDX-License-Identifier: MIT */
/*
 * Data pointers: bytes, and how to free them. See cowshed.h.
 */
#include "core/base/base.h"
#include "cowshed.h"

COW_EXPORT struct cow_data_ptr
cow_data_ptr_make(void *data, void *context, cow_deleter_fn *deleter,
                  struct cow_device device)
{
	return (struct cow_data_ptr){ data, context, deleter, device };
}

COW_EXPORT void
cow_data_ptr_clear(struct cow_data_ptr *ptr)
{
	struct cow_data_ptr old;

	if (!ptr)
		return;
	old = cow_data_ptr_move(ptr);
	if (old.context && old.deleter)
		old.deleter(old.context);
}

COW_EXPORT void *
cow_data_ptr_release_context(struct cow_data_ptr *ptr)
{
	void *context = ptr->context;

	ptr->context = NULL;
	return context;
}

COW_EXPORT struct cow_data_ptr
cow_data_ptr_move(struct cow_data_ptr *from)
{
	struct cow_data_ptr moved = *from;

	*from = (struct cow_data_ptr){ .device = moved.device };
	return moved;
}

COW_EXPORT void *
cow_data_ptr_cast(const struct cow_data_ptr *ptr, cow_deleter_fn *expected)
{
	return ptr->deleter == expected ? ptr->context : NULL;
}

COW_EXPORT bool
cow_data_ptr_compare_exchange_deleter(struct cow_data_ptr *ptr,
                                      cow_deleter_fn *expected,
                                      cow_deleter_fn *desired)
{
	if (ptr->deleter != expected)
		return false;
	ptr->deleter = desired;
	return true;
}
