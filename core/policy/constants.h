/* SPDX-License-Identifier: MIT */
/*
 * Constants of policy: numbers that could be others, and the engine would still be right
 *
 * Each has its unit, and its reason. Names that end in _NS are times in nanoseconds; _SHARE is
 * n where 1/n is meant; sizes are in bytes unless the comment names another unit. _LEAST and _MOST
 * are bounds. Above each group stands where its numbers come from:
 *
 *      Measured    other values were compared. The benchmark or the page with the result is named.
 *      Shown by    the number was estimated, and no benchmark chose it. The named one runs the
 *                  code that it steers, so it would show the cost of another value.
 *      Reasoned    the number follows from a limit, or from what a user would notice. No benchmark
 *                  chose it, and none would show a small change. A named test pins what it does.
 *
 * Names without a folder are programs and scripts of bench/. docs/design/policy.md tells what the
 * mechanisms bring, and how to measure that again. pairs.sh measures two builds, so two values, too.
 *
 * What follows from a format, from the kernel or from a data structure is no policy, and stays
 * where it is used. Bounds that other code sets are asserted at the end.
 */
#ifndef COW_CORE_POLICY_CONSTANTS_H
#define COW_CORE_POLICY_CONSTANTS_H

#include "core/base/base.h"

/* ---- Freed memory that stays warm (core/memory/decay.c): docs/design/warm-memory.md ---- */

/* How old it may become is the option `decay` (core/memory/state.c). These bound how much there is.
 * Twice as much of each: fewer page faults for programs that free and allocate in turns, and as
 * much more memory that counts as used and serves nobody. Of a share, twice as much is half. */

/* Measured: where each process could keep 16 MiB beyond its peak, php-fpm had 2.1 times the memory
 * that it has without the library. It has 1.5 times with these two, in the same processor time. */
#define COW__WARM_BEYOND_SHARE 16 /* of the peak: so much is kept beyond it, ... */
#define COW__WARM_BEYOND_LEAST (2 * MIB) /* ... or this, if that is more, ... */
/* Shown by churn.sh, memory.sh; tests/core/policy/test_replay.c: */
#define COW__WARM_BEYOND_MOST (16 * MIB) /* ... but at most this; with less no cgroup is asked */
#define COW__WARM_LIVELESS (64 * MIB) /* may be kept, however little is live */
#define COW__WARM_PEAK_SHARE 64 /* the peak counts as so much larger: a few pages cost no block */
#define COW__WARM_PEAK_NS 3000000000u /* a peak counts so long */
#define COW__WARM_SLICE (32 * MIB) /* given back in one go: some ms of the helper */
/* Reasoned: */
#define COW__WARM_HEADROOM_SHARE 4 /* of what a cgroup has left */
#define COW__WARM_HEADROOM_NS 100000000u /* the cgroup is asked this often at most, by its files */
#define COW__WARM_HELPER_LEAST (16 * MIB) /* less warm memory is not worth starting a helper */
#define COW__FREE_APART_LEAST (2 * MIB) /* less is freed with the lock: it takes microseconds */

/* ---- Where a block is placed (core/memory/place.c, tile.c, recycle.c) ---- */

/* More candidates: a better fit, and a longer allocation under the lock. */

/* Measured: with 16 MiB, cycles with blocks of 21 MiB took a tenth longer (`plain_cycle -S 1G -b
 * 21M -m read -w 10`, docs/design/warm-memory.md). */
#define COW__UNALIGNED_MOST (64 * MIB) /* a larger one begins at a huge page: its tables may move */
/* Shown by churn.sh: */
#define COW__FREE_LOOKS 8            /* candidates of one size class */
#define COW__REST_SHARE 16           /* a rest that is this share smaller than the block serves */
#define COW__WARM_PART_SHARE 4       /* of an extent so much is to be warm, or none */
#define COW__WARM_PARTS_SEEN 64      /* candidates for that */
/* Reasoned: */
#define COW__HOLES_SHARE 8           /* with more holes a freed tile gives the rest back, too */
#define COW__HOLLOW_LEAST (8 * MIB)  /* a smaller end that was not touched stays as it is */
#define COW__LIMBO_NS 200000000u     /* between looks whether relatives still read freed memory */
#define COW__GIB_ALIGNED_SHARE 64    /* of the window: a larger extent gets no boundary of 1 GiB */
/* Room to grow is only addresses: an extent that wants it stays clear of what grows behind it. */
#define COW__ROOM_TIMES 16           /* it gets so many times its size of free addresses, ... */
#define COW__ROOM_LEAST (256 * MIB)  /* ... or this, if that is more */
#define COW__ROOM_MIDDLE_TIMES 4     /* in a gap of more than so many times that: in the middle */

/* ---- The address window and its segments: tests/preload/limits.sh ---- */

/* Measured: qemu-user up to 8 has a table of all pages, 25 GB for 8 TiB.
 * tests/packaging/long_platforms.sh runs there. */
#define COW__WINDOW_EMULATED (8 * GIB)
/* Reasoned: */
#define COW__WINDOW_LEAST (4 * GIB)  /* a smaller window is not worth having */
#define COW__WINDOW_KEPT_SHARE 8     /* of a limit on addresses so much stays reserved */
#define COW__YIELD_LEAST MIB         /* smaller gaps are not worth a hole */
#define COW__SEGMENTS_MOST 32        /* each costs a descriptor; then new memory is anonymous */
#define COW__OVERCOMMIT_ASKED (64 * MIB) /* less is granted by every machine, and not asked for */
#define COW__STACK_MOST (256 * MIB)  /* of a stack that has no limit */

/* ---- Blocks with a segment of their own, to be sent (core/memory/own_segment.c) ---- */

/* Measured by give.c: 4 MiB take 0.14 ms until they are read, memcpy 0.37; 2 MiB is a tie. */
#define COW__OWN_ASKED_LEAST (4 * MIB)
/* Shown by give.c: */
#define COW__OWN_LEAST (64 * MIB)    /* if not asked for: less is copied as fast */
/* Reasoned: each costs a descriptor and a kernel mapping. */
#define COW__OWN_SEGMENTS_MOST 8u    /* if not asked for */
#define COW__OWN_SEGMENTS_ASKED_MOST 1024u
#define COW__OWN_DESCRIPTORS_SHARE 4 /* of the descriptor table: the rest is for the program */

/* ---- Committing ahead of a program that fills memory (core/memory/commit.c):
 *      docs/design/commit-ahead.md ---- */

/* Twice as much: fewer page faults at the begin of each block, and twice the memory that a
 * program pays for blocks that it hardly touches. */

/* Shown by fill.c, sparse.sh, `ablate.sh COMMIT`: */
#define COW__COMMIT_LEAST (2 * MIB)  /* ahead of any program */
#define COW__COMMIT_HELPED (4 * MIB) /* the helper needs time to react */
#define COW__COMMIT_LOOK_NS 40000u   /* the helper looks so often while the program fills memory, */
#define COW__COMMIT_LOOK_MOST_NS 10000000u /* ... and while it does not get on */
#define COW__COMMIT_HELPER_LEAST (16 * MIB) /* missing bytes that are worth a thread */
#define COW__COMMIT_YOUTH_NS 500000000u /* without progress for so long a tile is young no more */
#define COW__YOUNG_MOST 32           /* each look reads pagemap, and some never fill their blocks */
#define COW__YOUNG_LOOKS 8           /* in one call of the program */
#define COW__APART_MOST (8 * MIB)    /* for one call of the kernel; signals wait as long */
/* Reasoned: */
#define COW__COMMIT_ONCE (4 * GIB)   /* in one call of the program */
#define COW__COMMIT_BUSY_NS 50000u   /* between tries for a tile that a thread works on */
#define COW__COMMIT_BUSY_MOST_NS 50000000u /* somebody waits for the helper: not longer than that */

/* The share of what the program touched that may be ahead, by its history. Shown by fill.c,
 * sparse.sh, `ablate.sh FILL_HISTORY`; tests/core/policy/test_replay.c: */
#define COW__FILL_SHARE_FILLS 2      /* it fills extents of this size */
#define COW__FILL_SHARE 4            /* nothing is known of this size */
#define COW__FILL_SHARE_WASTED 10    /* some of this size was not filled */
#define COW__FILL_SHARE_SPARSE 16    /* it does not fill what it asks for */
#define COW__FILL_LEAST 16           /* "it fills": so many times what is wasted */
#define COW__FILL_MEMORY GIB         /* of history; then its weight is halved */

/* ---- Huge pages that several blocks share (core/memory/commit_unit.c) ---- */

/* Measured: with five pages of the page table a program that filled every other block had twice
 * what it touched (docs/design/warm-memory.md; tests/core/memory/test_packed.c). */
#define COW__UNIT_PROBES 16          /* pages that are looked at */
#define COW__UNIT_EMPTY_MOST 2       /* of these: a thirtieth of each block may be empty */
/* Shown by `ablate.sh UNITS`; tests/core/policy/test_policy.c: */
#define COW__UNIT_DEBT 16            /* filled units for each that was committed in vain */
#define COW__UNIT_PROOFS 4           /* units of zeros, before any is committed on trust */
#define COW__UNIT_TRUST_MOST 256     /* units on trust in a row */
#define COW__UNITS_REMEMBERED 8      /* committed units: zeros there tell nothing */

/* ---- Small pages made huge afterwards (core/memory/mend.c) ---- */

/* Shown by `ablate.sh MENDING`, plain_cycle: */
#define COW__MEND_WAIT_NS 100000000u /* the program may clone the block at once */
#define COW__MEND_EIGHTHS 7          /* eighths of a huge page must be there: sparse stays sparse */

/* ---- Page table entries that come back (core/memory/resident.c) ---- */

/* Reasoned; tests/programs/resident.c says how much of RSS may be missing. */
#define COW__RESIDENT_REST_NS 200000000u /* after a fork or a clone: the next one removes them */
#define COW__RESIDENT_STEP (16 * MIB) /* without the lock */
#define COW__RESIDENT_LEAST (16 * MIB) /* so much starts a helper for it; one that is there ... */
#define COW__RESIDENT_SHARE 16       /* ... brings back less, from this share of what is live on */

/* ---- Anonymous zeroed blocks (core/memory/extent.c, core/cow/zeroed.c) ---- */

/* Shown by zeros.sh, `prefork.sh pool`: */
#define COW__ZEROED_LEAST (4 * MIB)  /* a smaller one is filled with zeros in a file */
#define COW__ZEROED_FORKS_MOST 64    /* it looks at the forks 2, 4, 8 ... of these */
/* Reasoned: */
#define COW__ZEROED_MAPPINGS 3       /* kernel mappings that advice for huge pages makes of one */

/* ---- Copies that may be lazy (core/memory/copy_history.c, core/cow/copy.c):
 *      docs/design/lazy-copies.md ---- */

/* Shown by copies.sh: */
#define COW__COPY_LEAST (2 * MIB)    /* fewer bytes are cheaper copied */
#define COW__COPY_SOURCE_SHARE 4     /* of the source, which it freezes: so much at least */
#define COW__SITE_NEEDED_FIRST 2     /* copies in a row that were not written make the next lazy */
#define COW__SITE_NEEDED_MOST 4096   /* ... where lazy ones were wrong before */
#define COW__SITE_SKIPS_LOG_MOST 10  /* 1 << so many are not looked at */
#define COW__WATCHED_WRONG_SHARE 32  /* a copy was wrong if more of a side was written */
/* Reasoned; tests/core/memory/test_copy_history.c, tests/core/policy/test_policy.c: */
#define COW__COPY_BUSY_NS 20000u     /* waits for the helper, which works on the destination, ... */
#define COW__COPY_BUSY_NS_MIB 200000u /* ... for less time than the copy would take */
#define COW__COPY_PIECES_MOST 64     /* of a part that is copied lazily; each may be a mapping */
#define COW__SITES 256               /* places of code that are remembered */
#define COW__SITE_PROBES 4           /* of the table, for one */
#define COW__WATCHED_COPIES 64       /* at a time */
#define COW__WATCHED_PAGES 32        /* of a side, at most ... */
#define COW__WATCHED_PAGE_OF (256 * KIB) /* ... one of so many bytes */

/* Large copies by all processors (core/memory/bulk.c). Shown by rewrite.c: */
#define COW__BULK_STRIDE ((size_t)8 << 20) /* cleared by the kernel, then copied to */
#define COW__BULK_GRAIN 1            /* strides that are worth another thread */
#define COW__BULK_STREAM_LEAST (4 * MIB) /* the caches of a processor hold less than that */
/* Reasoned: */
#define COW__SPARSE_LEAST (256 * KIB) /* a larger copy looks for holes: a look costs about 2 us */

/* ---- Clones and writes of storages (core/storage): docs/design/materialize.md ---- */

/* Measured by page.c. Only their ratios matter. */
#define COW__COST_VIEW_NS 8000u      /* make a view, drop it later */
#define COW__COST_PAGE_WRITE_NS 2000u /* first write of a page in a view */
#define COW__COST_PAGE_COPY_NS 350u  /* a page's share of a whole copy */
#define COW__COST_COPY_NS 1500u      /* allocate and free */
/* Shown by clone.c, `curves size`, `scaling.sh`: */
#define COW__PAGED_LEAST (384 * KIB) /* below, memcpy is cheaper than freeze, view and faults */
#define COW__CLONES_TOGETHER 64      /* storages cloned under one lock: other threads wait */
#define COW__SMALL_MAX ((size_t)2048) /* a larger storage gets pages; the last class of small.c */
#define COW__SLAB_BYTES (64 * KIB)   /* is cut into small storages; whole pages */
/* Shown by stall.c: to thaw 1 GiB at once, of which a page in eight was written, takes 140 ms. */
#define COW__THAW_LEAST (16 * MIB)   /* thawed at once for a write */
/* Reasoned: */
#define COW__BLOCK_KEPT_MOST (128 * KIB) /* libc frees less without a call of the kernel */
#define COW__SPARSE_SHARE 64         /* COW_WRITE_SPARSE: of the range's pages */

/* ---- Layers, pieces and holes: docs/design/layers.md ---- */

/* Measured by transparent.c: a run in a layer takes about 20 us once, a page that is copied into
 * the view 2 to 3 us in each clone. */
#define COW__LAYERED_LEAST (64 * KIB) /* a shorter run is copied, not mapped, ... */
/* Shown by transparent.c: */
#define COW__PATCHED_MOST (64 * MIB) /* ... unless so much would be copied with the lock ... */
#define COW__PATCHED_SHARE 8         /* ... by each clone, or so much of the block */
#define COW__LAYER_RUNS_MOST 4096    /* written runs in one layer */
#define COW__LAYER_MOST_SHARE 2      /* of the block: if more was written, all is copied */
/* Reasoned, from the kernel's limit on mappings; tests/core/test_fallbacks.c: */
#define COW__LAYERS_FIFTHS 3         /* fifths of all mappings that layers leave */
#define COW__VIEWS_SHARE 16          /* of the mappings so much is left by views without a layer */

/* ---- Clones of one moment (core/storage/moment.c) ---- */

/* Reasoned: */
#define COW__MOMENT_GAP (64 * KIB)   /* a hole up to the next multiple is copied: finding it takes longer */
#define COW__MOMENT_REST_NS 1000000u /* the helper looks again whether a child has ended */
#define COW__PIECES_MOST 48          /* with many more a tile never thaws */
#define COW__PIECES_COMPARED 64      /* with more the answer is that others read the pages */
#define COW__HOLE_PAGES 64           /* a smaller hole is not worth a mapping */

/* ---- Thaws (core/cow/thaw.c, heal.c): docs/design/fork.md ---- */

/* The sizes of steps bound how long a write or a quiet moment lasts; smaller ones cost more
 * calls of the kernel for each byte. */

/* Measured: a program with a thousand mappings of 1 GiB thawed in 157 ms by steps of 256 MiB, and
 * in 7 ms by these (LTP's fork14; tests/core/cow/test_thaw_absent.c). */
#define COW__THAW_ABSENT_MOST (64 * GIB) /* mapped by one call, if nearly nothing is in it */
#define COW__THAW_NEIGHBOURS 1024    /* tiles, which takes microseconds to look at */
/* Shown by cycle.sh, stall.c: */
#define COW__THAW_STEP (256 * KIB)   /* copied pages in one part of a thaw by a writer */
#define COW__THAW_CLEAN_STEP (16 * MIB) /* so much clean memory is mapped by one call, ... */
#define COW__THAW_ABSENT_STEP (256 * MIB) /* ... or so much that is nearly empty */

/* Shown by plain_late, cycle.sh, redis.sh: */
#define COW__HEAL_AHEAD_NS 2000000u  /* copied ahead before a slice, which then has work */
/* A slice ends when a thread waits for its end, but not before this time. To begin and end one
 * takes as long as to thaw some chunks, and all threads pay for it. */
#define COW__HEAL_YIELD_NS 150000u
#define COW__HEAL_SLICE_NS 500000u   /* of one quiet moment: all threads wait so long at most */
#define COW__HEAL_GAP_NS 20000u      /* between two slices of the helper */
#define COW__HEAL_LOOK_NS 100000u    /* between looks whether all threads are parked ... */
#define COW__HEAL_LOOK_BUSY_NS 200000u /* ... while a busy program rests now and then */
#define COW__HEAL_LOOK_VAIN_NS 2000000u /* ... after a second in vain */
#define COW__HEAL_LOOK_HELD_NS 100000000u /* ... while other processes hold the pages */
#define COW__HEAL_CARE_NS 10000000u  /* so long in vain: threads that park heal, too */
#define COW__HEAL_STOP_NS 200000u    /* a thread that has not stopped by then is left alone ... */
#define COW__HEAL_STOP_CLEAN_NS 2000000u /* ... where all is clean: it may have no processor */
#define COW__HEAL_CREDIT_NS 10000000 /* threads may be stopped at most so long in a row */
/* Reasoned: */
#define COW__HEAL_HOPE_NS 1000000000u /* so long without a slice: shadows are given back */
#define COW__SHADOW_NS 500000000u    /* between looks for file pages under copied ones */
#define COW__HEAL_AHEAD_LATE_NS 20000000u /* it has not copied ahead for so long: slices copy */
#define COW__HEAL_REST_NS 200000000u /* what was left over is as it was: the helper looks again */
#define COW__HEAL_SETTLED_NS 100000000u /* a child that lives longer will hardly exec */
#define COW__HEAL_TRIES 3            /* to stop threads after a child was reaped */
#define COW__HEAL_PINNED_NS 1000000000u /* no new look so soon after memory was under I/O */

/* ---- Copying ahead of a thaw (core/cow/ahead.c): docs/design/fork.md ---- */

/* Measured by redis.sh: without them five of six slices tried the chunk with the server's buffer
 * again. The kernel may write there for a thread that parks most of the time. */
#define COW__AHEAD_PASSED 8          /* the latest chunks that could not thaw are remembered ... */
#define COW__AHEAD_PASSED_NS 20000000u /* ... for so long */
/* Shown by plain_late, `ablate.sh AHEAD`: */
#define COW__AHEAD_LEAST (64 * KIB)  /* a chunk with fewer copied bytes is thawed as it is */
#define COW__AHEAD_MOST 16           /* chunks: what is copied too early is written again */
#define COW__AHEAD_STEP (256 * KIB)  /* copied in one go: about 100 us */
#define COW__AHEAD_BATCH 8           /* so many chunks are marked at a time, or ... */
#define COW__AHEAD_BATCH_BYTES (4 * MIB) /* ... so many copied bytes, ... */
#define COW__AHEAD_BATCH_SPAN (64 * MIB) /* ... in so many bytes */

/* ---- Page tables that are moved away (core/cow/old_tables.c): docs/design/moved-page-tables.md */

/* Measured by redis.sh (`first`): with 32 MiB alone, shorter runs took 0.5 ms of the first fork,
 * and longer ones without entries were moved for nothing. */
#define COW__TABLES_LEAST (2 * MIB)  /* less is taken down as fast as it is moved */
#define COW__TABLES_LEAST_PAGES 512  /* ... and fewer page table entries than these are */
/* Measured: with 100 ms the RSS of programs that read beside a child often doubled. */
#define COW__TABLES_STAY_NS 20000000u /* a short child ends by then; they are moved back */
/* Shown by fork.sh, freeze.c, `ablate.sh OLD_TABLES`: */
#define COW__TABLES_LEAST_UNSEEN (32 * MIB) /* the least if the kernel can't tell the entries */
#define COW__TABLES_MOST 16          /* moved mappings at a time: each takes addresses */
#define COW__TABLES_GAP_SHARE 8      /* of a range that is moved at once may be free memory */
#define COW__TABLES_SLICE (32 * MIB) /* taken down in one go: about 1 ms of small pages */
/* Shown by cycle.sh, `ablate.sh OLD_RETURNS`; tests/core/policy/test_policy.c: */
#define COW__TABLES_REST_NS 5000000u /* the freezing thread may have more mappings to change */
#define COW__TABLES_STAY_MOST 4      /* moved mappings for which a short child is awaited */
#define COW__TABLES_RETURNS_FIRST 4  /* forks after which they come back no more, unless ... */
#define COW__TABLES_RETURNS_MOST 64  /* ... a fork found them used: then twice as many */
/* Reasoned: */
#define COW__TABLES_TRIES 3          /* then this kernel does not move shared memory */

/* ---- Rewrites in bulk, and their spare pages (core/cow/rewrite.c, core/memory/spare.c):
 *      docs/design/snapshots.md ---- */

/* Measured: with 10 s at most, most training loops found fresh memory at each checkpoint, which
 * the kernel clears first. `python.sh train` runs such a loop. */
#define COW__SPARE_KEEP_FIRST_NS 10000000000u /* after the first rewrite */
#define COW__SPARE_KEEP_MOST_NS 60000000000u
/* Shown by rewrite.c: */
#define COW__REWRITE_STEP (32 * MIB) /* under one lock: others wait some ms */
#define COW__REWRITE_STEPS 16        /* of one tile, at most, where they are larger than a step */
/* Reasoned: */
#define COW__SPARE_LOOK_NS 250000000u /* between looks for spare pages that nobody will use */
#define COW__SPARE_SAME_NS 100000000u /* rewrites that follow sooner are steps of one */

/* ---- Healing forward beside children that live on (core/cow/forward.c):
 *      docs/design/border.md ---- */

/* Measured by `border.sh daemon`: with 5 ms forks took as long. */
#define COW__FORWARD_HELD_NS 500000000u /* after a fork: most children are gone by then */
/* Shown by border.sh, `cycle.sh`: */
#define COW__FORWARD_RUN_LEAST (32 * MIB) /* moved to one target, for few mappings */
#define COW__FORWARD_RUNS 16         /* of one tile, at most */
#define COW__FORWARD_SLICE_NS 500000u /* between chunks a tenth of it */
#define COW__FORWARD_HELD_SHARE 16   /* of a chunk all but so much has to be copied, ... */
#define COW__FORWARD_LEFT_SHARE 8    /* ... or so much where nobody else reads it */
/* Reasoned: */
#define COW__FORWARD_LOOK_NS 200000000u /* between looks for memory to move ... */
#define COW__FORWARD_LOOK_MOST_NS 1600000000u /* ... which get rarer while there is none */
#define COW__FORWARD_BUSY_NS 2000000u /* no quiet moment: the next try */
#define COW__FORWARD_VAIN_MOST 500   /* so many of these, and the move ends */
/* Shown by `prefork.sh pool`, zeros.sh. Forks that kept the helper from looking for so long move a
 * zeroed block themselves, ... */
#define COW__FORWARD_OFTEN_NS COW__FORWARD_HELD_NS
#define COW__FORWARD_FORK_NS_GIB 20000000u /* ... as two forks without the library, ... */
#define COW__FORWARD_FORK_NS 2000000u /* ... and not less than this, ... */
#define COW__FORWARD_FORK_TRIES 10   /* ... if all threads rest at one of so many looks, ... */
#define COW__FORWARD_FORK_LOOK_NS 100000u /* ... of which one follows the other after so long. */
#define COW__FORWARD_FORK_REST 2     /* The next comes after so many times what one took */

/* ---- Forks, their children, and borders (core/fork, core/memory): docs/design/holders.md ---- */

/* Shown by template.sh. Without a pause each fork of a process with 1 000 living children asks for
 * all slots, and the kernel walks the list of locks each time. */
#define COW__SLOT_SKIPS 256          /* children that get the last slot before others are tried */
/* A description that was lent for long enough may be closed for a question: after so many forks,
 * or so much time, for each that was closed before. So N forks leave about sqrt(2 N) locks in
 * the kernel's list. The first ones are closed at once. Shown by template.sh: */
#define COW__SLOTS_CLOSED_AT_ONCE 16
#define COW__SLOT_LENT_NS 10000000u
/* Shown by fork.sh, `cycle.sh` (busy-...), `ablate.sh FEEDBACK`: */
#define COW__FORK_HEAL_NS 500000u    /* of a fork, and of a look for children */
#define COW__COPIED_SHARE 16         /* of what was frozen: with more copies it costs too much */
/* Reasoned; tests/core/fork/test_border_calls.c for the calls: */
#define COW__HOLDERS_REFRESH_NS 1000000u /* an answer which children live counts so long */
#define COW__FORK_TRY_NS 100000000u  /* for the engine's lock in a fork that may go without it */
#define COW__FORK_WAIT_NS 1000000000u /* for a thread that gives up privileges */
#define COW__REAPED_TRY_NS 5000000u  /* for the lock, after a child was reaped */
#define COW__BORDER_CALL_NS 1000000000u /* forks wait no longer for a call */
#define COW__BORDER_CALLS_MOST 8u    /* forks wait for no more at a time */
#define COW__STRANGER_LOOK_NS 1000000000u /* between looks for pages that strangers made */
#define COW__STRANGER_LEAST (2 * MIB) /* fewer of them stay */

/* ---- The helper, the workers and the lock (core/memory, core/engine.c) ---- */

/* Measured: a new thread takes 50 us. With 2 s nothing was healed for as long. */
#define COW__WORKERS_IDLE_NS 200000000u /* a thread without work ends */
/* Shown by tensors.sh, rewrite.c: */
#define COW__WORKERS_MOST 64         /* of a caller */
#define COW__WORKERS_PARTS 4         /* ranges for each: a thread that comes late gets fewer */
#define COW__WORKERS_SPINS 2000      /* of the caller, before it sleeps: some microseconds */
/* Reasoned: */
#define COW__TICK_NS 5000000u        /* calls of the program do the slower work at most so often */
#define COW__HELPER_LOCK_NS 20000u   /* between tries of the helper to get the lock ... */
#define COW__HELPER_LOCK_TRIES 50    /* ... before it queues for it */
#define COW__HANDLER_LOCK_NS 5000000000u /* a signal handler waits so long for the lock */
#define COW__SLEEPERS_NS 10000000u   /* between looks for threads that sleep, after one in vain */
#define COW__WORKERS_RETRY_NS 2000000000u /* after threads were denied */
#define COW__WORKERS_GLANCE_NS 1000000u /* at a pool that is busy, for cow_threads_end() */

/* ---- The shim (preload/). Its options have their defaults in preload/options.c ---- */

/* Reasoned: */
#define COW__SHIM_LOOK_NS 100000u /* between looks of a thread that parks whether a slice is due */
#define COW__SHIM_REST_NS 50000u  /* sleeps of a thread that waits for a lock of the shim */
#define COW__SHIM_SHRUNK_STAYS (128 * KIB) /* realloc: less moves to the next allocator */
#define COW__SHIM_CHILD_ASKS 16   /* requests of a child between looks whether it is settled */

/* ---- Bounds that the code sets ---- */

_Static_assert(COW__TABLES_RETURNS_MOST < 256 && COW__ZEROED_FORKS_MOST < 256, "kept in a byte");
_Static_assert(COW__SITES <= 256, "a hash has eight bits");
_Static_assert(COW__SITE_SKIPS_LOG_MOST < 32, "a shift of 32 bits");
_Static_assert(COW__SMALL_MAX <= 2048, "the last class of core/storage/small.c");
_Static_assert((COW__BULK_STRIDE & (COW__BULK_STRIDE - 1)) == 0 &&
                       (COW__THAW_ABSENT_STEP & (COW__THAW_ABSENT_STEP - 1)) == 0 &&
                       (COW__THAW_ABSENT_MOST & (COW__THAW_ABSENT_MOST - 1)) == 0,
               "powers of two: addresses are rounded to them");

#endif
