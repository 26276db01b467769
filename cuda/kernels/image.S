/* SPDX-License-Identifier: MIT */
/*
 * One file of machine code (IMAGE) as read-only data, from NAME to NAME_end. In a build
 * without nvcc the file is empty.
 */
#ifdef __CET__
#include <cet.h> /* a mark; without it the whole library loses the protection */
#endif

#define END_(name) name##_end
#define END(name) END_(name)

	.section .rodata, "a"
	.balign 64
	.globl NAME
	.hidden NAME
NAME:
	.incbin IMAGE
	.globl END(NAME)
	.hidden END(NAME)
END(NAME):
	.byte 0
	.section .note.GNU-stack, "", %progbits
