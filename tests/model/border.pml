/* SPDX-License-Identifier: MIT */
/*
 * A fork is a border: marks and lifelines of files whose holders become strangers
 *
 * A parent, its descendants, and files of one or two extents. Each process may fork,
 * thaw, free, use free memory again, give memory back, and become a stranger. Each may
 * be killed at any step. SPIN tries every order of the steps. A step is one load, one
 * store or one system call. A process takes its own steps in one order, since it has
 * its engine lock. Steps of other processes come between any two of them.
 *
 *   file:     marked (a seal that nobody can take back); word, extent_word (bits of slots)
 *   slot:     locks, the processes that have the open description of its lock
 *   process:  maps, has_control, lifeline (each file); shows (each extent)
 *             forked, was_free, limbo: what it knows of the file, in private memory
 *
 * A process may write a file in place if no other living process has a bit in the
 * file's word, and then the file has no mark. It may punch an extent if no other living
 * process has a bit in the extent's word, and then nobody holds a lifeline of the file.
 * A stranger takes its lifeline and sets the mark first, and then leaves its slot. So a
 * question that comes too late for the slot finds the lifeline and the mark.
 *
 * A process is honest until its privilege call takes effect. Then it is hostile to all
 * processes that it left, and an honest member of the new family that it founds. It has
 * no descriptor of the files that it gave up. It may let go of its lifeline, fork and
 * die. It reads any page of a file that it maps, and its pages in pipes outlive it.
 *
 * A shared mapping stands for writes in place at any moment until the next fork. So a
 * write is judged when the mapping is made, and at a fork that leaves it as it is.
 *
 * Beside the protocol stands the truth, which the code can't see. `sees` has the files
 * that a relative wrote in place while the process mapped them. `leaked` has the files
 * that a hostile process mapped. What is demanded:
 *
 *   - no hostile process reads what a relative wrote after the fork that separated them,
 *     nor what was free at that fork;
 *   - bytes change only by a write of their own process: nobody else writes or punches
 *     what a process shows, and no stranger keeps the means to do so;
 *   - a process that lives alone has each page of its files in a list of its own.
 *
 * Two dangers lie outside these rules, and border.sh shows both. With SPLICES an honest
 * process puts pages into a pipe, and dies or execs: the pipe shows later writes unless
 * it marks the file before. With OLD_BYTES a child maps bytes that its parent overwrote
 * or freed before the fork, and that another relative still reads. Its mapping shows them
 * after MADV_DONTNEED or mremap(). The child must copy what it shows, and unmap the file.
 *
 * border.sh says which instances are tried, and which protections are taken away to
 * see that the model notices.
 */
#ifndef PROCS
#define PROCS 3
#endif
#ifndef FILES
#define FILES 1
#endif
#ifndef EXTENTS
#define EXTENTS 1
#endif
#ifndef SLOTS
#define SLOTS 3
#endif
#ifndef KILLS
#define KILLS 1
#endif
#ifndef TURNS /* operations of each process; 0: any number */
#define TURNS 0
#endif
#ifndef PARENT_TURNS
#define PARENT_TURNS TURNS
#endif
/* A bit for each process that may do it. */
#ifndef FORKS
#define FORKS 7
#endif
#ifndef WRITES
#define WRITES 7
#endif
#ifndef FREES
#define FREES 7
#endif
#ifndef LEAVES
#define LEAVES 7
#endif
#ifndef COPIES
#define COPIES 7
#endif
#ifndef DROPS
#define DROPS 7
#endif
#ifndef SPLICES
#define SPLICES 0
#endif
#define PARENT 0
#define NONE 255

#define BIT(n) (1 << (n))
#define F(p, f) ((p) * FILES + (f))
#define E(p, f, e) (((p) * FILES + (f)) * EXTENTS + (e))
#define X(f, e) ((f) * EXTENTS + (e))
#define L(p, s) (family[p] * SLOTS + (s))
#define UNCOUNTED BIT(6) /* a holder without a slot */
#define MARK_BIT BIT(7)  /* with MARK_IN_WORD */
#define MAY(what) ((what) & BIT(me))
#define TURN_LEFT (TURNS == 0 || turns < (me == PARENT -> PARENT_TURNS : TURNS))

/* What a process shows of an extent. */
#define NOTHING 0
#define SHARED 1 /* its writes reach the file */
#define CLEAN 2  /* private, the pages of the file */
#define COPIED 3 /* private, pages of its own */

/* Operations. */
#define IDLE 0
#define WRITE 1
#define GIVE 2
#define FORK 3
#define LEAVE 4
#define DROP 5

bool alive[PROCS], hostile[PROCS], left[PROCS];
bool blind[PROCS]; /* it found no slot, so it knows no words */
byte family[PROCS], slot[PROCS];
byte locks[(PROCS + 1) * SLOTS];

bool marked[FILES];
byte word[FILES], extent_word[FILES * EXTENTS];
bool bytes[FILES * EXTENTS]; /* the file has pages there */

bool maps[PROCS * FILES], has_control[PROCS * FILES], lifeline[PROCS * FILES];
bool forked[PROCS * FILES];
byte shows[PROCS * FILES * EXTENTS];
bool was_free[PROCS * FILES * EXTENTS]; /* free here, or in the parent at the fork */
bool limbo[PROCS * FILES * EXTENTS];    /* freed while others read it */

bool old[PROCS * FILES * EXTENTS]; /* hidden by a copy, or in limbo, at the fork */
bool sees[PROCS * FILES], leaked[FILES];
byte piped[FILES]; /* processes that may read a pipe with its pages */
byte files, procs, kills;

/* ---- The truth ---- */

/* Nobody else counts on these pages. A hostile process that let go of its lifeline harms
 * only itself. */
inline nobody_reads(f, e)
{
	n = 0;
	do
	:: n == PROCS -> n = 0; break
	:: else ->
		assert(n == me || !alive[n] || shows[E(n, f, e)] == NOTHING ||
		       shows[E(n, f, e)] == COPIED ||
		       (hostile[n] && !has_control[F(n, f)] && !lifeline[F(n, f)]));
		n++
	od
}

inline in_place(f, e)
{
	assert(!leaked[f]);
	assert(!(piped[f] & ~BIT(me)));
	nobody_reads(f, e);
	do
	:: n == PROCS -> n = 0; break
	:: else ->
		sees[F(n, f)] = sees[F(n, f)] || (n != me && maps[F(n, f)]);
		n++
	od
}

inline punch(f, e)
{
	nobody_reads(f, e);
	bytes[X(f, e)] = false
}

/* From now on the process reads what it maps, and writes what it has. So it has no file
 * that others map, and maps none that others wrote. */
inline becomes_hostile(f)
{
	assert(!sees[F(me, f)]);
	n = 0;
	do
	:: n == EXTENTS -> n = 0; break
	:: else ->
		assert(!was_free[E(me, f, n)] || !bytes[X(f, n)]);
#ifdef OLD_BYTES
		assert(!old[E(me, f, n)] || !bytes[X(f, n)]);
#endif
		assert(has_control[F(me, f)] || shows[E(me, f, n)] != SHARED);
		n++
	od;
	if
	:: has_control[F(me, f)] ->
		do
		:: n == PROCS -> n = 0; break
		:: else -> assert(n == me || !maps[F(n, f)]); n++
		od
	:: else ->
		leaked[f] = true;
		do
		:: n == EXTENTS -> n = 0; break
		:: else -> was_free[E(me, f, n)] = false; limbo[E(me, f, n)] = false; n++
		od
	fi
}

/* If all other processes are dead, this one must know of the pages: else nobody ever
 * gives them back. */
inline finds(f, e)
{
	n = 0;
	do
	:: n < PROCS && (n == me || !alive[n]) -> n++
	:: else -> break
	od;
	assert(n < PROCS || !has_control[F(me, f)] || !bytes[X(f, e)] ||
	       shows[E(me, f, e)] != NOTHING || was_free[E(me, f, e)] || limbo[E(me, f, e)]);
	n = 0
}

/* ---- Questions ---- */

/* Locks of dead slots are kept until the operation is over. Otherwise a relative's new
 * child could get such a slot between question and deed. */
#ifdef NO_KEPT_LOCKS
#define KEEP_LOCK(n) skip
#define CLEAR_STALE(w) skip
#else
#define KEEP_LOCK(n) locks[L(me, n)] = locks[L(me, n)] | BIT(me)
#define CLEAR_STALE(w) w = w & (~bits | (slot[me] == NONE -> 0 : BIT(slot[me])))
#endif

/* The slots of `bits`, one after the other. */
inline look()
{
	if
	:: bits & (UNCOUNTED | MARK_BIT) -> others = true; n = SLOTS
	:: else
	fi;
	do
	:: n < SLOTS && (!(bits & BIT(n)) || n == slot[me]) -> n++
	:: n < SLOTS && (bits & BIT(n)) && n != slot[me] && (locks[L(me, n)] & ~BIT(me)) ->
		others = true;
		n = SLOTS
	:: n < SLOTS && (bits & BIT(n)) && n != slot[me] && !(locks[L(me, n)] & ~BIT(me)) ->
		KEEP_LOCK(n);
		n++;
#ifdef FINE
		break
#endif
	:: n == SLOTS -> break
	od
}

/* Is there another holder that lives? The caller has loaded `bits` from the word. */
inline ask(w)
{
	do
	:: atomic { n < SLOTS -> look() }
#ifndef NO_SECOND_LOOK
	/* A holder that has died meanwhile may have forked before. */
	:: atomic { n == SLOTS && !others && (w & ~bits) -> bits = w; n = 0 }
	:: atomic {
		n == SLOTS && (others || !(w & ~bits)) ->
#else
	:: atomic {
		n == SLOTS ->
#endif
		n = 0;
		if
		:: !others -> CLEAR_STALE(w)
		:: else
		fi;
		bits = 0;
		break
	   }
	od
}

/* May this process write the file in place? If not, it gives the file up when it becomes
 * a stranger. The word comes first: a stranger sets the mark before it leaves the word. */
inline may_write_begins(f, w)
{
#ifdef MARK_FIRST
	ok = !marked[f]
#else
	bits = w
#endif
}

inline may_write(f, w)
{
	if
	:: atomic { !forked[F(me, f)] -> ok = true; bits = 0 }
	:: atomic { forked[F(me, f)] && blind[me] -> ok = false; bits = 0 }
	:: else ->
#ifdef MARK_FIRST
		bits = w;
#endif
		ask(w);
		atomic {
#if defined(NO_MARK)
			ok = !others;
#elif defined(MARK_FIRST)
			ok = ok && !others;
#elif defined(KEEPS_MARKED)
			ok = !others && (op == LEAVE || !marked[f]);
#else
			ok = !others && !marked[f];
#endif
			others = false;
#ifdef EXTENT_WORDS
			forked[F(me, f)] = !ok || op == WRITE
#else
			forked[F(me, f)] = !ok
#endif
		}
	fi
}

/* Does a stranger hold a lifeline? One system call asks for the lock. */
inline is_held(f)
{
	do
	:: n == PROCS -> n = 0; break
	:: else -> held = held || (alive[n] && lifeline[F(n, f)]); n++
	od
}

/* ---- Operations ---- */

#ifdef EXTENT_WORDS
#define WORD(f, e) extent_word[X(f, e)]
#else
#define WORD(f, e) word[f]
#endif

/* Frozen memory is mapped shared again, or free memory of the file gets new bytes. That
 * stands for warm memory, for spare pages, and for what is copied ahead. */
inline write(f, e)
{
	shows[E(me, f, e)] = SHARED;
	bytes[X(f, e)] = true;
	old[E(me, f, e)] = false;
	was_free[E(me, f, e)] = false;
	limbo[E(me, f, e)] = false;
	in_place(f, e)
}

inline fork_child()
{
	n = procs;
	procs++;
	alive[n] = true;
	hostile[n] = hostile[me];
	family[n] = family[me];
	slot[n] = childs;
	blind[n] = childs == NONE;
	if
	:: childs != NONE -> locks[L(me, childs)] = locks[L(me, childs)] | BIT(n)
	:: else
	fi;
	f = 0;
	do
	:: f == FILES -> break
	:: else ->
		maps[F(n, f)] = maps[F(me, f)];
		has_control[F(n, f)] = has_control[F(me, f)];
		lifeline[F(n, f)] = lifeline[F(me, f)];
		forked[F(n, f)] = forked[F(me, f)];
		sees[F(n, f)] = sees[F(me, f)];
		if
		:: piped[f] & BIT(me) -> piped[f] = piped[f] | BIT(n)
		:: else
		fi;
		e = 0;
		do
		:: e == EXTENTS -> break
		:: else ->
			if
			:: shows[E(me, f, e)] == SHARED -> sees[F(n, f)] = true
			:: else -> shows[E(n, f, e)] = shows[E(me, f, e)]
			fi;
			was_free[E(n, f, e)] = was_free[E(me, f, e)];
			limbo[E(n, f, e)] = limbo[E(me, f, e)];
#ifdef OLD_BYTES
			old[E(n, f, e)] = bytes[X(f, e)] && maps[F(me, f)] &&
				(old[E(me, f, e)] || limbo[E(me, f, e)] ||
				 shows[E(me, f, e)] == COPIED);
#endif
			e++
		od;
		f++
	od;
	e = 0;
	f = 0;
	run process(n);
	n = 0
}

/* A slot that nobody has, without what an earlier owner left behind. */
inline take_slot(ret)
{
	n = 0;
	do
	:: n < SLOTS && locks[L(me, n)] -> n++
	:: else -> break
	od;
	ret = (n < SLOTS -> n : NONE);
	if
	:: n < SLOTS ->
		locks[L(me, n)] = BIT(me);
		f = 0;
		do
		:: f == FILES -> f = 0; break
		:: f < FILES && has_control[F(me, f)] ->
			word[f] = word[f] & ~BIT(n);
			e = 0;
			do
			:: e == EXTENTS -> e = 0; break
			:: else -> extent_word[X(f, e)] = extent_word[X(f, e)] & ~BIT(n); e++
			od;
			f++
		:: f < FILES && !has_control[F(me, f)] -> f++
		od
	:: else
	fi;
	n = 0
}

inline take_slots()
{
	if
	:: slot[me] == NONE && !blind[me] -> take_slot(slot[me])
	:: else
	fi;
	blind[me] = slot[me] == NONE;
	if
	:: !blind[me] -> take_slot(childs)
	:: else
	fi
}

#ifdef OPEN_TARGETS /* pages that a rewrite has begun to write stay shared */
#define FREEZES(e) ((e) == 0)
#else
#define FREEZES(e) true
#endif

/* Freezes what is shared, and counts the child as a holder. */
inline inherit(f)
{
	if
	:: has_control[F(me, f)] ->
		forked[F(me, f)] = true;
		bits = (slot[me] == NONE -> 0 : BIT(slot[me])) |
			(childs == NONE -> UNCOUNTED : BIT(childs));
		word[f] = word[f] | bits;
		n = 0;
		do
		:: n == EXTENTS -> n = 0; break
		:: else ->
			if
			:: shows[E(me, f, n)] == SHARED && FREEZES(n) -> shows[E(me, f, n)] = CLEAN
			:: else
			fi;
			if
			:: shows[E(me, f, n)] >= CLEAN ->
				extent_word[X(f, n)] = extent_word[X(f, n)] | bits
			:: else
			fi;
			n++
		od;
		bits = 0
	:: else
	fi
}

/* The slots are taken already. A child without a slot counts for ever. */
inline fork_goes_on()
{
	f = 0;
	do
	:: atomic { f < FILES -> inherit(f); f++ }
	:: atomic { f == FILES -> f = 0; break }
	od;
	atomic {
		if
		:: procs < PROCS -> fork_child()
		:: else
		fi
	}
	atomic {
		if
		:: childs != NONE ->
			locks[L(me, childs)] = locks[L(me, childs)] & ~BIT(me);
			childs = NONE
		:: else
		fi
	}
}

/* Nothing of the file is left in this process. */
inline unmap(f)
{
	maps[F(me, f)] = false;
	lifeline[F(me, f)] = false;
	sees[F(me, f)] = false;
	do
	:: n == EXTENTS -> n = 0; break
	:: else ->
		was_free[E(me, f, n)] = false;
		limbo[E(me, f, n)] = false;
		old[E(me, f, n)] = false;
		n++
	od
}

inline make_file()
{
	f = files;
	files++;
	maps[F(me, f)] = true;
	has_control[F(me, f)] = true;
	shows[E(me, f, 0)] = SHARED;
	bytes[X(f, 0)] = true;
	f = 0
}

/* It closes what it has of the family's slots: its own, and those of the dead. */
inline close_slots()
{
	n = 0;
	do
	:: n == SLOTS -> n = 0; break
	:: else -> locks[L(me, n)] = locks[L(me, n)] & ~BIT(me); n++
	od
}

/* Punches what was free at the fork. Nobody uses that memory again while this process
 * has a bit in the file's word. Limbo is no free memory: others read it. */
inline punch_free(f)
{
	e = 0;
	do
	:: atomic {
		e < EXTENTS ->
		if
		:: bytes[X(f, e)] && was_free[E(me, f, e)] -> punch(f, e)
#ifdef LIMBO_PUNCHED
		:: bytes[X(f, e)] && limbo[E(me, f, e)] -> punch(f, e)
#endif
		:: else
		fi;
		e++
	   }
	:: atomic { e == EXTENTS -> e = 0; break }
	od
}

#ifdef PUNCH_ALONE
/* Punches what was hidden at the fork, by a copy or in limbo, if nobody reads it. */
inline punch_old(f)
{
	e = 0;
	do
	:: atomic { e < EXTENTS && !(bytes[X(f, e)] && old[E(me, f, e)]) -> e++ }
	:: atomic {
		e < EXTENTS && bytes[X(f, e)] && old[E(me, f, e)] -> bits = extent_word[X(f, e)]
	   }
		if
		:: atomic { blind[me] -> others = true; bits = 0 }
		:: else -> ask(extent_word[X(f, e)])
		fi;
		if
		:: atomic { !others -> is_held(f) }
		:: others
		fi;
		atomic {
			if
			:: !others && !held -> punch(f, e)
			:: else -> rest = true
			fi;
			others = false;
			held = false;
			e++
		}
	:: atomic { e == EXTENTS -> e = 0; break }
	od
}
#endif

#ifdef COPIES_OUT
/* Copies what it shows of the file, and keeps nothing of it. */
inline copy_out(f)
{
	rest = false;
	do
	:: n == EXTENTS -> n = 0; break
	:: n < EXTENTS && shows[E(me, f, n)] == CLEAN -> shows[E(me, f, n)] = COPIED; n++
	:: n < EXTENTS && shows[E(me, f, n)] != CLEAN -> n++
	od;
	unmap(f)
}

#if EXTENTS == 1
#define HIDES(f) old[E(me, f, 0)]
#else
#define HIDES(f) (old[E(me, f, 0)] || old[E(me, f, 1)])
#endif
#endif

/* Just before the privilege call. It gives up each file that it may not write in place:
 * another process may have the file, or a stranger had it. */
inline become_stranger()
{
	do
	:: f == FILES -> break
#ifdef COPIES_OUT
	:: atomic {
		f < FILES && !has_control[F(me, f)] && maps[F(me, f)] && HIDES(f) -> copy_out(f)
	   }
	:: atomic {
		f < FILES && !has_control[F(me, f)] && !(maps[F(me, f)] && HIDES(f)) -> f++
	   }
#else
	:: atomic { f < FILES && !has_control[F(me, f)] -> f++ }
#endif
	:: atomic { f < FILES && has_control[F(me, f)] -> may_write_begins(f, word[f]) }
		may_write(f, word[f]);
#ifdef NO_PUNCH
		skip;
#elif defined(PUNCH_IF_GIVEN)
		if
		:: !ok -> punch_free(f)
		:: else
		fi;
#else
		punch_free(f);
#endif
#ifdef PUNCH_ALONE
		punch_old(f);
#endif
		if
#ifdef COPIES_OUT
		:: atomic { rest -> given = given | BIT(f); copy_out(f) }
		:: !rest && !ok ->
#else
		:: !ok ->
#endif
			given = given | BIT(f);
#if !defined(LIFELINE_LATE) && !defined(LIFELINE_AFTER_MARK)
			lifeline[F(me, f)] = true;
#endif
#ifndef MARK_LATE
#ifdef MARK_IN_WORD
			word[f] = word[f] | MARK_BIT;
#else
			marked[f] = true;
#endif
#endif
#ifdef LIFELINE_AFTER_MARK
			lifeline[F(me, f)] = true;
#endif
		:: else
		fi;
#ifdef SLOT_WITH_FIRST
		atomic { close_slots() }
#endif
#ifdef FAILS /* a step of the next file, or the call */
		if
		:: atomic {
			true ->
			do
			:: f < FILES && (given & BIT(f)) -> lifeline[F(me, f)] = false; f++
			:: f < FILES && !(given & BIT(f)) -> f++
			:: f == FILES -> f = 0; break
			od;
			given = 0;
			left[me] = false;
			goto stays
		   }
		:: true
		fi;
#endif
		atomic { ok = false; f++ }
	od;
	f = 0;
#ifdef NO_LOCK /* another thread forks meanwhile */
	if
	:: atomic { procs < PROCS -> take_slots() } fork_goes_on()
	:: true
	fi;
#endif
	/* Descriptors, control parts, and the family's slots. */
	atomic {
		do
		:: f == FILES -> f = 0; break
		:: f < FILES && (given & BIT(f)) ->
			do
			:: n == EXTENTS -> n = 0; break
			:: n < EXTENTS && shows[E(me, f, n)] == SHARED ->
				shows[E(me, f, n)] = CLEAN;
				n++
			:: n < EXTENTS && shows[E(me, f, n)] != SHARED -> n++
			od;
			has_control[F(me, f)] = false;
			f++
		:: f < FILES && !(given & BIT(f)) -> f++
		od
	}
	atomic { close_slots(); family[me] = me + 1; slot[me] = NONE; blind[me] = false }
#ifdef UNLOCKED_EARLY /* another thread forks before the call takes effect */
	if
	:: atomic { procs < PROCS -> take_slots() } fork_goes_on()
	:: true
	fi;
#endif
#if defined(MARK_LATE) || defined(LIFELINE_LATE)
	do
	:: atomic { f == FILES -> f = 0; break }
	:: atomic {
		f < FILES ->
		if
#ifdef MARK_LATE
		:: given & BIT(f) -> marked[f] = true
#else
		:: given & BIT(f) -> lifeline[F(me, f)] = true
#endif
		:: else
		fi;
		f++
	   }
	od;
#endif
	atomic {
		hostile[me] = true;
		do
		:: f == FILES -> f = 0; break
		:: f < FILES && maps[F(me, f)] -> becomes_hostile(f); f++
		:: f < FILES && !maps[F(me, f)] -> f++
		od;
		given = 0
	}
}

/* ---- Processes ---- */

#if EXTENTS == 1
#define SHOWS_NOTHING(f) (shows[E(me, f, 0)] == NOTHING)
#else
#define SHOWS_NOTHING(f) (shows[E(me, f, 0)] == NOTHING && shows[E(me, f, 1)] == NOTHING)
#endif

/* Lets go of the locks of the dead. */
inline unlock()
{
	atomic {
		n = 0;
		do
		:: n == SLOTS -> break
		:: else ->
			if
			:: n != slot[me] -> locks[L(me, n)] = locks[L(me, n)] & ~BIT(me)
			:: else
			fi;
			n++
		od;
		n = 0;
		others = false;
		ok = false;
		held = false;
		rest = false;
		f = 0;
		e = 0;
		op = IDLE
	}
}

proctype process(byte me)
{
	byte n, f, e, op, bits, given, turns, childs = NONE;
	bool others, ok, held, rest;

	{
end:	do
	:: atomic {
		TURN_LEFT ->
		turns = turns + (TURNS > 0);
		/* Any file and extent. */
		if
		:: f = 0
#if FILES > 1
		:: files > 1 -> f = 1
#endif
#if FILES > 2
		:: files > 2 -> f = 2
#endif
		fi;
		if
		:: e = 0
#if EXTENTS > 1
		:: e = 1
#endif
		fi;
		finds(f, e);
		if
		:: MAY(WRITES) && has_control[F(me, f)] && shows[E(me, f, e)] != SHARED ->
#ifdef WARM_REUSED
			if
			:: shows[E(me, f, e)] == NOTHING -> write(f, e)
			:: else -> may_write_begins(f, WORD(f, e)); op = WRITE
			fi
#else
			may_write_begins(f, WORD(f, e));
			op = WRITE
#endif
		:: MAY(FREES) && has_control[F(me, f)] &&
			(shows[E(me, f, e)] >= CLEAN ||
			 (bytes[X(f, e)] && shows[E(me, f, e)] == NOTHING)) ->
#ifdef LIFELINE_FIRST
			is_held(f);
#else
			bits = extent_word[X(f, e)];
#endif
			op = GIVE
		:: MAY(FREES) && has_control[F(me, f)] && shows[E(me, f, e)] == SHARED ->
			/* It is warm. */
			shows[E(me, f, e)] = NOTHING;
			was_free[E(me, f, e)] = true
		:: MAY(COPIES) && maps[F(me, f)] && shows[E(me, f, e)] == CLEAN ->
			shows[E(me, f, e)] = COPIED
		:: MAY(DROPS) && has_control[F(me, f)] && SHOWS_NOTHING(f) -> unmap(f); op = DROP
		:: MAY(FORKS) && procs < PROCS -> f = 0; e = 0; take_slots(); op = FORK
		:: MAY(WRITES) && files < FILES -> f = 0; e = 0; make_file()
		:: MAY(LEAVES) && !left[me] -> f = 0; e = 0; left[me] = true; op = LEAVE
		:: MAY(SPLICES) && maps[F(me, f)] &&
			(shows[E(me, f, e)] == CLEAN || shows[E(me, f, e)] == SHARED) ->
#ifdef SPLICE_MARKS
			marked[f] = marked[f] || has_control[F(me, f)];
			forked[F(me, f)] = true;
#endif
			piped[f] = piped[f] | BIT(me)
		:: hostile[me] && lifeline[F(me, f)] -> lifeline[F(me, f)] = false
		:: else -> turns = turns - (TURNS > 0)
		fi;
		if
		:: op == IDLE -> f = 0; e = 0
		:: else
		fi
	   }
	   if
	   :: op == IDLE
	   :: op == WRITE ->
		may_write(f, WORD(f, e));
		if
		:: atomic { ok -> write(f, e) }
		:: !ok
		fi;
		unlock()
	   :: op == GIVE ->
		/* What nobody else reads: below copies, or because it is freed. */
#ifdef LIFELINE_FIRST
		bits = extent_word[X(f, e)];
#endif
		if
		:: atomic { blind[me] && forked[F(me, f)] -> others = true; bits = 0 }
		:: else -> ask(extent_word[X(f, e)])
		fi;
#if !defined(NO_LIFELINE) && !defined(LIFELINE_FIRST)
		if
		:: atomic { !others -> is_held(f) }
		:: others
		fi;
#endif
		if
		:: atomic { !others && !held -> punch(f, e); ok = true }
		:: others || held
		fi;
		if
		:: shows[E(me, f, e)] == COPIED
		:: atomic {
			shows[E(me, f, e)] >= CLEAN ->
			shows[E(me, f, e)] = NOTHING;
#ifdef LIMBO_OF_MAKER
			limbo[E(me, f, e)] = !ok && me == PARENT;
#else
			limbo[E(me, f, e)] = !ok;
#endif
			if
			:: slot[me] != NONE ->
				extent_word[X(f, e)] = extent_word[X(f, e)] & ~BIT(slot[me])
			:: else
			fi
		   }
		:: atomic {
			shows[E(me, f, e)] == NOTHING ->
			if
			:: ok -> limbo[E(me, f, e)] = false; was_free[E(me, f, e)] = false
			:: else
			fi
		   }
		fi;
		unlock()
	   :: op == FORK -> fork_goes_on(); unlock()
	   :: op == LEAVE -> become_stranger();
stays:		unlock()
	   :: op == DROP ->
		atomic {
			word[f] = word[f] & (slot[me] == NONE -> 255 : ~BIT(slot[me]));
			has_control[F(me, f)] = false;
			forked[F(me, f)] = false
		}
		unlock()
	   fi
	od
	} unless {
		atomic {
			!alive[me] ->
			n = 0;
			f = 0;
			e = 0;
			op = IDLE;
			turns = 0;
			bits = 0;
			given = 0;
			childs = NONE;
			others = false;
			ok = false;
			held = false;
			rest = false
		}
	}
}

/* Kills, at any step. */
inline kill(v)
{
	kills++;
	alive[v] = false;
	hostile[v] = false;
	left[v] = false;
	blind[v] = false;
	do
	:: n == (PROCS + 1) * SLOTS -> n = 0; break
	:: else -> locks[n] = locks[n] & ~BIT(v); n++
	od;
	do
	:: f == FILES -> f = 0; break
	:: else ->
		maps[F(v, f)] = false;
		has_control[F(v, f)] = false;
		lifeline[F(v, f)] = false;
		forked[F(v, f)] = false;
		sees[F(v, f)] = false;
		do
		:: n == EXTENTS -> n = 0; break
		:: else ->
			shows[E(v, f, n)] = NOTHING;
			was_free[E(v, f, n)] = false;
			limbo[E(v, f, n)] = false;
			old[E(v, f, n)] = false;
			n++
		od;
		f++
	od;
	family[v] = 0;
	slot[v] = NONE
}

proctype death()
{
	byte f, n;

end:
	do
	:: atomic { kills < KILLS && alive[0] -> kill(0) }
	:: atomic { kills < KILLS && alive[1] -> kill(1) }
#if PROCS > 2
	:: atomic { kills < KILLS && alive[2] -> kill(2) }
#endif
#if PROCS > 3
	:: atomic { kills < KILLS && alive[3] -> kill(3) }
#endif
	od
}

init
{
	byte e;

	atomic {
		alive[PARENT] = true;
		slot[PARENT] = NONE;
		files = 1;
		procs = 1;
		maps[F(PARENT, 0)] = true;
		has_control[F(PARENT, 0)] = true;
		do
		:: e == EXTENTS -> break
		:: else -> shows[E(PARENT, 0, e)] = SHARED; bytes[X(0, e)] = true; e++
		od;
		run process(PARENT);
		run death()
	}
}
