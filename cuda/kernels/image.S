/* SPDX-License-Identifier: MIT */
/*
 * One file of machine code (IMAGE) as read-only data: NAME to NAME_end. An empty file
 * is what a build without nvcc has.
 */
#ifdef __CET__
#include <cet.h> /* the mark without which the whole library goes unprotected */
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
