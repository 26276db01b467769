/* SPDX-License-Identifier: MIT */
/*
 * Locked memory: mlock2(2), mlockall(2). See memfd/map.h.
 *
 * After mlockall(MCL_FUTURE) the kernel locks a mapping when it is made, and makes its pages
 * present before the call returns. It leaves a mapping without access alone. So memory that
 * is to stay sparse is mapped so, unlocked, and opened then.
 */
#include "memfd/map.h"
#include "memfd/sys.h"

#define HUGE_BYTES ((size_t)2 << 20)

int
cow__map_lock(uintptr_t addr, size_t bytes, int flags)
{
	if (flags < 0)
		return (int)SYS3(SYS_munlock, addr, bytes, 0);
	return (int)SYS3(SYS_mlock2, addr, bytes, flags);
}

int
cow__map_unlock_all(void)
{
	return (int)SYS3(SYS_munlockall, 0, 0, 0);
}

int
cow__map_unlocked(uintptr_t addr, size_t bytes, const struct cow__descriptor *d,
                  uint64_t offset, bool shared, bool inherit)
{
	int r = cow__map_protected(addr, bytes, d, offset, shared, PROT_NONE);

	if (r < 0)
		return r;
	if (inherit)
		r = cow__map_inherit(addr, bytes, true);
	(void)cow__map_lock(addr, bytes, -1);
	if (r == 0)
		r = cow__map_protect(addr, bytes, COW__MAP_READ_WRITE);
	if (r < 0)
		(void)cow__map_none(addr, bytes);
	return r;
}

int
cow__map_private_unlocked(uintptr_t addr, size_t bytes,
                          const struct cow__descriptor *d, uint64_t offset)
{
	uintptr_t at;
	int r = cow__map_reserve(bytes, HUGE_BYTES, &at);

	if (r == 0) {
		r = cow__map_unlocked(at, bytes, d, offset, false, true);
		if (r == 0)
			r = cow__map_move(at, bytes, addr);
		if (r < 0)
			(void)cow__map_release(at, bytes);
	}
	/* Limits on addresses may forbid two mappings at once. */
	return r == -ENOMEM ? cow__map_private(addr, bytes, d, offset, true) : r;
}
