/* SPDX-License-Identifier: MIT */
/*
 * Safe points: the handshake between threads that park and a prover (quiet/park.h)
 *
 * A few threads, a helper, and signals that arrive before any step. SPIN tries
 * every order of the steps. A step is one load, one store or one system call of
 * the code. Nothing counts turns: threads and provers go on as long as they like,
 * and each may end at any time.
 *
 *   thread:  now (as the memory has it), pending (its store buffer), registered,
 *            cancelled, in_vfork
 *   word:    floor, fences
 *
 * The store buffer delays a store to `now` for any time, also behind later stores.
 * With LATE_WRITES it delays the program's own writes, too. A call becomes visible
 * behind the writes before it (a release). That is weaker than x86-64, and as weak
 * as aarch64 in this handshake.
 *
 * Each thread has one process for the program's code, and one for each depth of
 * nested handlers. Only the deepest one that has begun runs. All of them write,
 * make calls and return. A handler may leave by longjmp().
 *
 * Beside the handshake stands the truth. `moving` has the pages that a prover moves
 * now: a write to one of them is lost. What is demanded:
 *
 *   - no lost write: neither by the program, nor by the kernel into a buffer or
 *     for a signal's frame;
 *   - a prover reads only descriptions whose call is not over;
 *   - nobody sleeps for ever.
 *
 * park.sh says which instances are tried, and which protections are taken away to
 * see that the model notices.
 */
#ifndef THREADS
#define THREADS 2
#endif
#ifndef DEPTH /* of nested handlers */
#define DEPTH 0
#endif
#ifndef SIGNALED /* a bit for each thread that gets signals */
#define SIGNALED 1
#endif
#ifndef BORN /* the thread that MOTHER makes, with BIRTH */
#define BORN (THREADS - 1)
#define MOTHER 0
#else
#define MOTHER 1
#endif
#define LEVELS (DEPTH + 1)
#define HELPER THREADS
#define NONE 255

/* Values of `now`: the program runs; it waits for the end of the floor; a call. */
#define RUNS 0
#define WAITS 1
#define CALL(level, fence) (2 + 2 * (level) + (fence))
#define LEVEL_OF(v) (((v) - 2) / 2)
#define IS_FENCED(v) ((v) & 1)
#define EMPTY 255 /* of `pending` */

/* Pages: one for the program's data, one for the stacks, each call's buffer. */
#define DATA 1
#define STACK 2
#define BUFFER(t, level) (4 << ((t) * LEVELS + (level)))
#define PAGES ((4 << (THREADS * LEVELS)) - 1)

bool floor, fences;
byte now[THREADS], pending[THREADS];
bool late[THREADS]; /* a write of the program, in the store buffer */
bool registered[THREADS], cancelled[THREADS], in_vfork[THREADS], unknown;
bool mutex, list; /* the engine's lock; that of the records */
bool asleep[THREADS], masked[THREADS];
byte awaited; /* only with COUNTS_WAITERS, WAITERS_BIT */

/* The kernel's and the truth's. */
byte depth[THREADS], jump[THREADS], framed[THREADS];
bool still[THREADS * LEVELS]; /* a handler of greater depth runs */
bool begun[THREADS * LEVELS]; /* the program's own code in a handler */
bool exists[THREADS], ending[THREADS], asks[THREADS];
byte raw[THREADS]; /* sleeps in a futex wait that is no safe point */
bool stirred[THREADS], sent[THREADS], cleans[THREADS], in_child[THREADS];
bool ungated, helper_rests;
short moving;

#define OWN(t) (pending[t] != EMPTY -> pending[t] : now[t])

inline drain(t)
{
	atomic {
		if
		:: late[t] -> assert(!moving); late[t] = false
		:: else
		fi;
		if
		:: pending[t] != EMPTY -> now[t] = pending[t]; pending[t] = EMPTY
		:: else
		fi
	}
}

/* The program's data. */
inline write(t)
{
#ifdef LATE_WRITES
	late[t] = true
#else
	assert(!moving)
#endif
}

/* A call becomes visible behind what the thread wrote before: a release. */
#ifdef RELAXED_ENTER
#define IN_ORDER(t) true
#else
#define IN_ORDER(t) (pending[t] == RUNS || !late[t])
#endif
#define MAY_EMPTY(t) (pending[t] != EMPTY && IN_ORDER(t))

/* Only a thread with a record has a `now`. */
inline store(t, v)
{
	atomic {
		assert(!(moving & STACK));
		if
		:: registered[t] -> pending[t] = v
		:: else
		fi
	}
}

/* cow__park_wait() */
inline wait(t)
{
#ifdef COUNTS_WAITERS
	awaited++;
#endif
	do
#ifdef VFORK_WAITS
	:: store(t, WAITS);
#elif defined(WAITS_UNPARKED)
	:: store(t, RUNS);
#else
	/* A child of vfork() may be killed here, and the parent goes on. */
	:: store(t, (in_vfork[t] -> RUNS : WAITS));
#endif
		do
#ifdef WAITERS_BIT
		:: atomic { floor && !awaited -> awaited = 1 }
		:: atomic { floor && awaited -> asleep[t] = true }
			!asleep[t]
#else
		:: atomic { floor -> asleep[t] = true }
			!asleep[t]
#endif
		:: !floor -> break
		od;
		store(t, RUNS);
#ifndef WAIT_UNFENCED
		drain(t);
#endif
		if
		:: !floor -> break
		:: else
		fi
	od
#ifdef COUNTS_WAITERS
	;
	awaited--
#endif
}

/* cow__park_leave() */
inline leave(t, fence)
{
	store(t, RUNS);
	if
	:: fence -> drain(t)
	:: else
	fi;
#ifdef LEAVE_BLIND
	if
	:: level > 0 && !in_call && floor -> wait(t)
#else
	if
	:: floor -> wait(t)
#endif
	:: else
	fi
}

/* preload_park_slowly(), libc's call, preload_unpark() */
inline call(t)
{
	/* No `else`: it would be that of the loop around. A child of vfork() makes
	 * no record: it has another process number. */
	if
	:: in_child[t] && (!registered[t] || in_vfork[t]) -> goto program
	:: !in_child[t] && registered[t] && in_vfork[t] -> in_vfork[t] = false
	:: registered[t] && !in_vfork[t]
	:: !in_child[t] && !registered[t] ->
#ifdef LIST_FREE
		registered[t] = true
#else
		atomic { !list -> registered[t] = true }
#endif
	fi;
	atomic {
		v = CALL(level, fences);
		framed[t] = framed[t] | (1 << level);
		in_call = true;
		store(t, v)
	}
	do
	:: atomic { true -> assert(!(moving & BUFFER(t, level))) }
#ifdef FUTEX
	/* Such as the mutex of a condition variable, which libc opens. */
	:: atomic { t == 0 && raw[1] == 2 -> raw[1] = 0; stirred[1] = true }
#endif
#ifdef CANCEL
	/* libc unwinds the stack from within the call. */
	:: atomic {
		sent[t] && !cleans[t] ->
			cleans[t] = true;
			framed[t] = 0;
			in_call = false;
			v = 0;
			goto program
	   }
#endif
	:: break
	od;
	leave(t, IS_FENCED(v));
	atomic {
		framed[t] = framed[t] & ~(1 << level);
		in_call = false;
		v = 0
	}
}

/* pthread_cancel(1) */
inline cancel()
{
	atomic {
#ifndef LIST_FREE
		!list ->
#endif
		if
#ifndef NO_CANCELLED
		:: registered[1] -> cancelled[1] = true
#endif
#ifndef NO_UNKNOWN
		:: !registered[1] -> unknown = true
#endif
		:: else
		fi
	}
	sent[1] = true
}

/* What the program does, in a handler, too. */
inline code_of_program(t)
{
	do
	:: atomic { true -> write(t) }
#ifndef NO_CALLS
	:: call(t)
#endif
#if DEPTH > 0
	/* longjmp() to the handler that was interrupted, or to one further down. A
	 * handler that is still in its gate is no place to go to. */
	:: atomic {
		level > 0 && !cleans[t] ->
#ifdef LONGJMP_PARKED
			pending[t] = was;
#endif
			if
			:: level > 1 && begun[t * LEVELS + level - 1] ->
				jump[t] = level - 1
			:: jump[t] = 0
			fi
	   }
	   false
#endif
#ifdef RAW_HANDLER
	:: ungated = true
#endif
#ifdef FUTEX
	/* A program may let a thread sleep for ever. */
	:: atomic { level == 0 -> raw[t] = 1 }
end_sleeps:
		raw[t] == 0
	:: atomic { t == 1 && level == 0 -> raw[t] = 2 }
end_sleeps_too:
		raw[t] == 0
	:: atomic { raw[0] == 1 -> raw[0] = 0; stirred[0] = true }
	:: atomic { raw[1] == 1 -> raw[1] = 0; stirred[1] = true }
#if THREADS > 2
	:: atomic { raw[2] == 1 -> raw[2] = 0; stirred[2] = true }
#endif
#endif
#ifdef BIRTH
	:: atomic { t == MOTHER && !born -> born = true; exists[BORN] = true; stirred[BORN] = true }
#endif
#ifdef CANCEL
	:: atomic { t == 0 && level == 0 && !sent[1] } ; cancel()
#endif
#ifdef VFORK
	:: atomic {
		t == 0 && level == 0 && !in_child[t] && !list ->
#ifndef VFORK_UNKNOWN
			registered[t] = true;
#endif
#ifndef NO_VFORK_MARK
			in_vfork[t] = registered[t]
#endif
	   }
	   in_child[t] = true
#endif
#ifdef ASKS
	:: atomic {
		t == 0 && level == 0 ->
#ifndef UNMASKED
			masked[t] = true;
#endif
			asks[t] = true
	   }
	   atomic { !asks[t] -> masked[t] = false }
#endif
	:: atomic { in_child[t] -> in_child[t] = false } /* it ends */
	:: !in_child[t] || level > 0 -> break
	od
}

/* A signal arrives: the kernel writes the frame, and takes it off a futex. */
inline signal(t)
{
	atomic {
		depth[t] == level - 1 && exists[t] && !masked[t] &&
		jump[t] == NONE ->
			assert(!(moving & STACK));
			depth[t] = level;
			still[t * LEVELS + level - 1] = true;
			asleep[t] = false;
			raw[t] = 0;
			stirred[t] = true
	}
}

inline return_to_lower(t)
{
	depth[t] = level - 1;
	still[t * LEVELS + level - 1] = false
}

/* enter(), pass() */
inline gate(t)
{
#ifdef NO_GATE
	was = RUNS
#else
	/* enter(): one look at the word, then at what only this thread writes. */
#ifdef JUMPS_BESIDE_FENCES
	was = (floor -> RUNS : NONE);
#elif defined(JUMPS_BESIDE_FLOOR)
	was = (fences -> RUNS : NONE);
#else
	atomic { was = (floor || fences -> RUNS : NONE) }
#endif
	if
#ifdef JUMPS_FROM_CALLS
	:: atomic { was == NONE && !in_vfork[t] -> was = RUNS }; goto jumped
#elif defined(JUMPS_FROM_VFORK)
	:: atomic { was == NONE && OWN(t) == RUNS -> was = RUNS }; goto jumped
#else
	:: atomic { was == NONE && OWN(t) == RUNS && !in_vfork[t] -> was = RUNS }; goto jumped
#endif
	:: else
	fi;
	atomic { was = OWN(t); vforks = in_vfork[t] }
#ifdef GATE_BLIND
	store(t, RUNS)
#else
#ifdef GATE_UNFENCED
	leave(t, (was >= CALL(0, 0) && IS_FENCED(was)))
#else
	leave(t, true)
#endif
#endif
#ifdef EARLY_RESTORE
	;
	store(t, was)
#endif
jumped:
	skip
#endif
}

/* The program's code, level 0, and handlers. */
proctype code(byte me; byte level) provided (!still[me * LEVELS + level])
{
	byte was, v;
	bool back, in_call, vforks;
#ifdef BIRTH
	bool born;
#endif

	do
	:: {
		if
		:: level == 0 && !back ->
end_unborn:
			exists[me]
#if DEPTH > 0
		:: level > 0 && !back ->
end_idle:
			signal(me);
			if
			:: ungated -> was = RUNS
			:: true -> gate(me)
			fi
#endif
		:: back
		fi;
		atomic { back = false; begun[me * LEVELS + level] = true }
program:
		code_of_program(me);
		if
#if DEPTH > 0
		:: level > 0 && !cleans[me] ->
			begun[me * LEVELS + level] = false;
			/* The signal may have come between the mark and vfork(). */
#ifndef VFORK_FORGOTTEN
			if
			:: vforks -> in_vfork[me] = true
			:: else
			fi;
#endif
			if
			:: was != RUNS -> store(me, was)
			:: else
			fi;
			atomic { was = 0; vforks = false; return_to_lower(me) }
		:: level > 0 && cleans[me] -> /* the thread ends here */
			atomic { ending[me] = true; jump[me] = 0 }
			false
#endif
		:: level == 0 -> goto over
		fi
	   } unless {
		atomic {
			jump[me] != NONE && depth[me] == level ->
				v = 0;
				in_call = false;
				framed[me] = framed[me] & ~(1 << level);
				if
				:: jump[me] < level ->
					was = 0;
					vforks = false;
					begun[me * LEVELS + level] = false;
					back = false;
					return_to_lower(me)
				:: else -> jump[me] = NONE; back = true
				fi;
				if
				:: ending[me] && level == 0 -> goto over
				:: else
				fi
		}
	   }
	od;
over:
	atomic {
		drain(me);
		exists[me] = false;
		framed[me] = 0;
		v = 0;
		was = 0;
		back = false
	}
}

/* Empties the store buffers, some time. */
proctype memory()
{
end:
	do
	:: atomic { MAY_EMPTY(0) -> now[0] = pending[0]; pending[0] = EMPTY }
	:: atomic { late[0] -> assert(!moving); late[0] = false }
#if THREADS > 1
	:: atomic { MAY_EMPTY(1) -> now[1] = pending[1]; pending[1] = EMPTY }
	:: atomic { late[1] -> assert(!moving); late[1] = false }
#endif
#if THREADS > 2
	:: atomic { MAY_EMPTY(2) -> now[2] = pending[2]; pending[2] = EMPTY }
	:: atomic { late[2] -> assert(!moving); late[2] = false }
#endif
	od
}

#ifdef VFORK
/* Kills the child of thread 0 at any step. */
proctype killer()
{
end:
	do
	:: atomic {
		in_child[0] && jump[0] == NONE ->
			in_child[0] = false;
			asleep[0] = false;
			drain(0);
			jump[0] = 0
	   }
	od
}
#endif

#if THREADS == 3
#define EXISTING (exists[0] + exists[1] + exists[2])
#elif THREADS == 2
#define EXISTING (exists[0] + exists[1])
#else
#define EXISTING exists[0]
#endif
#define IN_CALL(t) (registered[t] && now[t] >= CALL(0, 0))

/* cow__park_written(): what the kernel may write for a thread. */
inline collect(t)
{
	v = now[t];
	if
	:: registered[t] && t != self && v >= CALL(0, 0) ->
		assert(framed[t] & (1 << LEVEL_OF(v)));
#ifndef NO_RANGES
		left = left | BUFFER(t, LEVEL_OF(v))
#endif
	:: else
	fi;
	v = 0
}

/* look_at(). Removes the record of a thread that has ended. */
inline look_at(t)
{
	atomic {
		v = now[t];
#ifdef RANGES_EARLY
		assert(v < CALL(0, 0) || (framed[t] & (1 << LEVEL_OF(v))));
#endif
#ifndef FLAGS_LAST
		if
		:: cancelled[t] -> v = RUNS
		:: else
		fi
#endif
	}
#ifdef FENCES
#ifdef FENCE_IN_FRAME
	/* From a frame that is gone comes anything. */
	atomic {
		if
		:: v >= CALL(0, 0) && !IS_FENCED(v) &&
		   (framed[t] & (1 << LEVEL_OF(v))) -> v = RUNS
		:: else
		fi
	}
#else
#ifndef FENCE_OLD
	atomic {
		if
		:: v >= CALL(0, 0) && !IS_FENCED(v) -> v = RUNS
		:: else
		fi
	}
#endif
#endif
#endif
	atomic {
		if
		:: v != RUNS -> parked++; v = 0
		:: v == RUNS && !exists[t] ->
			registered[t] = false;
			cancelled[t] = false
		:: else -> goto busy
		fi
	}
}

/* Is a thread that is not parked asleep? */
inline look_at_other(t)
{
	if
	:: t == self || !exists[t] || (registered[t] && now[t] != RUNS)
	:: else ->
		if
		:: asleep[t]
		:: raw[t] == 1
#ifdef NO_MAY_WAKE
		:: raw[t] == 2
#else
		:: raw[t] == 2 && !IN_CALL(0)
#endif
		:: else -> goto busy
		fi;
		/* The second look must find the same threads, and none that has run
		 * since the first. */
		if
		:: again && stirred[t] -> goto busy
		:: again && !stirred[t] -> seen--
		:: !again -> stirred[t] = false; seen++
		fi
	fi
}

inline look_at_others()
{
	do
	:: atomic { n < THREADS -> look_at_other(n); n++ }
	:: atomic { n == THREADS -> n = 0; break }
	od
}

inline look_at_handlers()
{
	if
#ifndef NO_HANDLERS
	:: ungated -> goto busy
#endif
	:: else
	fi
}

/* cow__quiet_begin() */
inline quiet_begin()
{
#ifndef NO_MUTEX
	atomic { !mutex -> mutex = true }
	atomic { !list -> list = true }
#endif
	floor = true;
#ifdef FENCES
	fences = true;
#else
#ifndef NO_MEMBARRIER
	do
	:: atomic { n < THREADS -> drain(n); n++ }
	:: atomic { n == THREADS -> n = 0; break }
	od;
#endif
#endif
#ifdef COUNT_FIRST
	count = EXISTING;
#endif
#ifdef HANDLERS_FIRST
	look_at_handlers();
#endif
	do
	:: atomic { n < THREADS && (n == self || !registered[n]) -> n++ }
	:: n < THREADS && n != self && registered[n] -> look_at(n); n++
	:: atomic { n == THREADS -> n = 0; break }
	od;
#ifdef HANDLERS_SECOND
	look_at_handlers();
#endif
	/* After the threads: those that could make one are parked. */
#ifndef COUNT_FIRST
	count = EXISTING;
#endif
	if
	:: count == parked + (self < THREADS -> 1 : 0)
	:: else ->
		look_at_others();
#ifdef FUTEX
#ifndef ONE_LOOK
#ifndef TWO_LOOKS
		again = true;
#endif
		look_at_others();
#ifndef NOT_THE_SAME
		if
		:: again && seen != 0 -> goto busy
		:: else
		fi
#endif
#endif
#endif
	fi;
#ifdef CANCEL
#ifdef FLAGS_LAST
	do
	:: atomic { n < THREADS && !cancelled[n] -> n++ }
	:: n < THREADS && cancelled[n] -> goto busy
	:: atomic { n == THREADS -> n = 0; break }
	od;
#endif
	if
	:: unknown -> goto busy
	:: else
	fi;
#endif
#ifndef HANDLERS_FIRST
#ifndef HANDLERS_SECOND
	look_at_handlers();
#endif
#endif
	skip
}

/* cow__quiet_end() */
inline quiet_end()
{
	atomic {
		n = 0;
		v = 0;
		parked = 0;
		count = 0;
		seen = 0;
		again = false;
		wakes = true;
#ifdef WAITERS_BIT
		wakes = awaited != 0;
		awaited = 0;
#endif
		floor = false
	}
#ifdef COUNTS_WAITERS
	wakes = awaited != 0;
#endif
	atomic {
#ifndef NO_WAKE
		do
		:: n < THREADS -> asleep[n] = asleep[n] && !wakes; n++
		:: n == THREADS -> break
		od;
		n = 0;
#endif
		wakes = false;
		list = false;
		mutex = false;
		if
		:: self < THREADS -> asks[self] = false
		:: else
		fi
	}
}

/* The helper, or a thread of the program: `asks` is its call then. */
proctype prover(byte self)
{
	byte n, v, parked, count, seen;
	bool again, wakes;
	short left;

end:
	do
	:: self == HELPER -> break
	:: self == HELPER || asks[self] ->
		quiet_begin();
		do
		:: atomic { n < THREADS -> collect(n); n++ }
		:: atomic { n == THREADS -> n = 0; break }
		od;
#ifdef STACKS_MOVED
		atomic { moving = PAGES & ~left; left = 0 }
#else
		atomic { moving = PAGES & ~STACK & ~left; left = 0 }
#endif
		moving = 0;
busy:
		quiet_end()
	od;
	helper_rests = true
}

#if defined(COUNTS_WAITERS) || defined(WAITERS_BIT)
/* A count that is too high makes provers hurry for nobody, for ever. */
proctype judge()
{
end:
	EXISTING == 0 && helper_rests -> assert(awaited == 0)
}
#endif

init
{
	byte t, l;

	atomic {
		do
		:: t < THREADS ->
			jump[t] = NONE;
			pending[t] = EMPTY;
#ifdef BIRTH
			exists[t] = t != BORN;
#else
			exists[t] = true;
#endif
			l = 0;
			do
			:: l == 0 || (l < LEVELS && (SIGNALED & (1 << t))) ->
				run code(t, l);
				l++
			:: else -> break
			od;
			t++
		:: else -> break
		od;
		run memory();
		run prover(HELPER);
#ifdef ASKS
		run prover(0);
#endif
#ifdef VFORK
		run killer();
#endif
#if defined(COUNTS_WAITERS) || defined(WAITERS_BIT)
		run judge();
#endif
	}
}
