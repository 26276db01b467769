/* SPDX-License-Identifier: MIT */
/*
 * Who holds an extent: the protocol of share/hold.c, share/pack.c and share/home.c
 *
 * One extent of one pack, a few members, messages that travel, and somebody who
 * kills any member at any step. SPIN tries every order of the steps. A step is
 * one load, one store or one system call of the code; what the code does under
 * cow__share_lock is that of one process, so others step in between here, too.
 *
 *   row:     hold, leaving (bits); row_epoch          in the pack
 *   slot:    slot_epoch; alive (its lock is held)     in the group, in the kernel
 *
 * Beside the protocol stands the truth, which the code can't see: owns[row], who
 * really has the extent. What is demanded:
 *
 *   - who writes in place, gives the pages back or uses them again is the only
 *     one that owns them: no lost write, no early free;
 *   - what a message carries is there when it arrives;
 *   - when all have come to rest, what counts is what is true: nothing stays held
 *     for the dead, so the last one can steal;
 *   - if nobody was killed or stopped, pages that nobody owns are given back.
 *
 * share.sh says which instances are tried, and which protections are taken away
 * to see that the model notices. Memory is as in one order of all steps: the
 * code's atomics on bits and on `moves` are SEQ_CST.
 */
#ifndef MEMBERS
#define MEMBERS 2
#endif
#ifndef ROWS
#define ROWS 4
#endif
#ifndef TURNS
#define TURNS 3
#endif
#ifndef SENDS
#define SENDS 2
#endif
#ifndef KILLS
#define KILLS 1
#endif
#define OWNER 0
#ifdef OWNERLESS /* it died long ago */
#define IS_OWNER false
#else
#define IS_OWNER (me == OWNER)
#endif
#define NONE 255

#if ROWS == 2
#define ANY_QUEUED (queued[0] || queued[1])
#elif ROWS == 3
#define ANY_QUEUED (queued[0] || queued[1] || queued[2])
#else
#define ANY_QUEUED (queued[0] || queued[1] || queued[2] || queued[3])
#endif

bool hold[ROWS], leaving[ROWS], alive[ROWS];
byte row_epoch[ROWS], slot_epoch[ROWS], moves;
bool owns[ROWS];

/* Messages, by their row: in the queue, or in a member's hands. */
bool queued[ROWS];
byte hands[ROWS];
byte carried[ROWS]; /* generation */

byte slot[MEMBERS], generation, sends, kills;
bool killed[MEMBERS], rests[MEMBERS], retired[MEMBERS];
bool pages, given_up, forked, death_rests;
bool in_free, in_limbo; /* the owner's lists */

/* Nobody but row `r` owns it. */
inline only(r)
{
	atomic {
		n = 0;
		do
		:: n < ROWS -> assert(n == r || !owns[n]); n++
		:: else -> break
		od;
		n = 0
	}
}

/* slot_lock(): any that is free. */
inline slot_take(ret)
{
	atomic {
		n = 0;
		do
		:: n < ROWS && !alive[n] -> break
		:: n < ROWS -> n++
		:: n == ROWS -> break
		od;
		ret = (n < ROWS -> n : NONE);
		n = 0;
		if
		:: ret != NONE -> alive[ret] = true; hands[ret] = me
		:: else
		fi
	}
}

inline slot_epoch_next(s)
{
	slot_epoch[s] = slot_epoch[s] + 1
}

inline row_begin(s)
{
	if
	:: row_epoch[s] == slot_epoch[s]
	:: else ->
#ifndef NO_SWEEP
		if
		:: row_epoch[s] != 0 ->
			atomic { hold[s] = false; leaving[s] = false }
		:: else
		fi;
#endif
		row_epoch[s] = slot_epoch[s]
	fi
}

inline hold_set(s)
{
	row_begin(s);
	hold[s] = true;
	moves++
}

/* look(): rest is 0 nobody, 1 followed, 2 leaving, 3 staying. */
#define NOBODY 0
#define FOLLOWED 1
#define LEAVING 2
#define STAYING 3

inline look(mine, go)
{
	rest = NOBODY;
	n = 0;
	do
	:: n == ROWS || rest == STAYING -> break
	:: else ->
		if
		:: n == mine || row_epoch[n] == 0
		:: else ->
			if
			:: hold[n] ->
#ifdef NO_LEAVING
				goes = false;
#else
				goes = go && leaving[n];
#endif
				if
#ifndef NO_SECOND_LOOK
				:: go && !goes -> gone = !hold[n]
#endif
				:: else
				fi;
				e = row_epoch[n];
				if
				:: gone || e == 0
#ifndef NO_EPOCH
				:: !gone && e != 0 && e != slot_epoch[n]
				:: !gone && e != 0 && e == slot_epoch[n] ->
#else
				:: !gone && e != 0 ->
#endif
					if
#ifdef NO_DEATH
					:: false
#else
					:: !alive[n]
#endif
					:: else ->
						if
						:: !goes -> rest = STAYING
						:: goes && n < mine -> rest = LEAVING
						:: goes && n > mine && rest == NOBODY ->
							rest = FOLLOWED
						:: else
						fi
					fi
				fi
			:: else
			fi
		fi;
		gone = false;
		n++
	od;
	atomic { n = 0; e = 0; goes = false; gone = false }
}

inline others(mine, go)
{
	before = moves;
	look(mine, go);
#ifndef NO_MOVES
	do
	:: rest <= FOLLOWED && before != moves ->
		before = moves;
		look(mine, go)
	:: else -> break
	od;
#endif
	before = 0
}

/* cow__space_give() */
inline leave(s)
{
	atomic { owns[s] = false; row_begin(s) }
	leaving[s] = true;
	others(s, true);
#ifndef NO_WAIT
	do
	:: rest == LEAVING -> others(s, true)
#ifdef STOPS
	:: rest == LEAVING -> given_up = true; break
#endif
	:: rest != LEAVING -> break
	od;
#endif
#ifdef CLEAR_BEFORE_PUNCH
	hold[s] = false;
#endif
	if
	:: rest <= FOLLOWED -> atomic { only(NONE); pages = false }
	:: else
	fi;
	hold[s] = false;
	leaving[s] = false;
	if
	:: IS_OWNER && !in_limbo ->
#ifdef REUSE_FOLLOWED
		if
		:: rest <= FOLLOWED -> in_free = true
#else
		if
		:: rest == NOBODY -> in_free = true
#endif
		:: else -> in_limbo = true
		fi
	:: else
	fi;
	rest = NOBODY
}

/* poll() */
inline look_after()
{
	if
#ifndef POLL_OWN
	:: hold[slot[OWNER]]
#endif
	:: else ->
		others(slot[OWNER], false);
		if
		:: rest == NOBODY ->
			atomic { only(NONE); pages = false };
			atomic { in_limbo = false; in_free = true }
		:: else
		fi;
		rest = NOBODY
	fi
}

inline make()
{
	in_free = false;
	generation++;
	hold_set(slot[OWNER]);
	atomic { only(NONE); owns[slot[OWNER]] = true; pages = true }
}

/* cow__slot_take(), cow__hold_set(), the socket, cow__slot_close() */
inline send(s)
{
	sends++;
	slot_take(m);
	if
	:: m == NONE
	:: else ->
		slot_epoch_next(m);
		hold_set(m);
		atomic {
			owns[m] = true;
			carried[m] = generation;
			hands[m] = NONE;
			queued[m] = true
		}
	fi;
	m = 0
}

/* open_packed(), land() */
inline receive(s)
{
	atomic {
		m = 0;
		do
		:: m < ROWS && queued[m] -> break
		:: m < ROWS -> m++
		:: m == ROWS -> break
		od;
		if
		:: m < ROWS -> queued[m] = false; hands[m] = me
		:: else
		fi
	}
	if
	:: m < ROWS ->
		assert(row_epoch[m] == slot_epoch[m] && hold[m]);
		assert(carried[m] == generation && pages);
#ifdef CLEAR_BEFORE_SET
		atomic { hold[m] = false; owns[s] = true; owns[m] = false }
		hold_set(s);
#else
		hold_set(s);
		atomic { owns[s] = true; owns[m] = false }
		hold[m] = false;
#endif
		row_epoch[m] = 0;
		atomic { hands[m] = NONE; alive[m] = false }
	:: else
	fi;
	m = 0
}

/* home_alone(), and the write. */
inline steal(s)
{
	others(s, false);
	if
	:: rest == NOBODY ->
		generation++;
		atomic { only(s); assert(pages) }
	:: else
	fi;
	rest = NOBODY
}

#ifdef FORK
/* prepare_group() and fork(). What lies behind a private mapping is not written
 * any more by either. */
inline fork_now(s)
{
	forked = true;
	slot_take(m);
	if
	:: m == NONE
	:: else ->
		slot_epoch_next(m);
		if
		:: row_epoch[s] == slot_epoch[s] ->
			row_begin(m);
			hold[m] = hold[s];
			moves++
		:: else
		fi;
		atomic {
			owns[m] = owns[s];
			hands[m] = NONE;
			retired[me] = true;
			retired[MEMBERS - 1] = true;
			slot[MEMBERS - 1] = m;
			run member(MEMBERS - 1)
		}
	fi;
	m = 0
}
#endif

proctype member(byte me) provided (!killed[me])
{
	byte n, m, e, before, rest, turns;
	bool goes, gone;

	do
	:: turns == TURNS -> break
	:: turns < TURNS ->
		turns++;
		if
		:: owns[slot[me]] -> leave(slot[me])
		:: owns[slot[me]] && sends < SENDS -> send(slot[me])
		:: owns[slot[me]] && !retired[me] -> steal(slot[me])
#if SENDS > 0
		:: ANY_QUEUED ->
			receive(slot[me])
#endif
		:: IS_OWNER && in_limbo && !retired[me] -> look_after()
		:: IS_OWNER && in_free && !retired[me] -> make()
#ifdef FORK
		:: me == FORK && !forked -> fork_now(slot[me])
#endif
		:: break
		fi
	od;
	/* Some keep what they have, and live on. */
	if
	:: owns[slot[me]] -> leave(slot[me])
	:: true
	fi;
	rests[me] = true
}

/* Kills, and loses what is in the queue: its last descriptor is closed. */
proctype death()
{
	byte v, r;

	do
	:: kills == KILLS -> break
	:: kills < KILLS ->
		atomic {
			v = 0;
			do
			:: v < MEMBERS - 1 -> v++
			:: break
			od;
			if
			:: !killed[v] && !rests[v] && slot[v] != NONE ->
				killed[v] = true;
				alive[slot[v]] = false;
				owns[slot[v]] = false;
				r = 0;
				do
				:: r < ROWS && hands[r] == v ->
					alive[r] = false;
					owns[r] = false;
					hands[r] = NONE;
					r++
				:: r < ROWS && hands[r] != v -> r++
				:: r == ROWS -> break
				od
			:: else
			fi;
			kills++;
			v = 0;
			r = 0
		}
	:: break
	od;
#ifdef NEWCOMER
	/* Somebody becomes a member and holds nothing. */
	atomic {
		do
		:: r < ROWS && !alive[r] -> alive[r] = true; break
		:: r < ROWS -> r++
		:: r == ROWS -> break
		od
	}
	if
	:: r < ROWS -> slot_epoch_next(r)
	:: else
	fi;
#endif
	death_rests = true
}

#define RESTS(i) (rests[i] || killed[i] || slot[i] == NONE)
#if MEMBERS == 3
#define ALL_REST (RESTS(0) && RESTS(1) && RESTS(2) && death_rests)
#else
#define ALL_REST (RESTS(0) && RESTS(1) && death_rests)
#endif

/* When nothing moves any more. */
proctype judge()
{
	byte n, e, before, rest;
	bool goes, gone;

	ALL_REST;
	/* Sockets are closed at last. */
	atomic {
		do
		:: n < ROWS ->
			if
			:: queued[n] ->
				queued[n] = false;
				alive[n] = false;
				owns[n] = false;
				given_up = true
			:: else
			fi;
			n++
		:: else -> break
		od;
		n = 0
	}
	if
	:: in_limbo && !killed[OWNER] && !retired[OWNER] ->
		look_after();
	:: else
	fi;
	atomic {
		do
		:: n < ROWS ->
			assert(owns[n] ==
			       (hold[n] && row_epoch[n] != 0
#ifndef NO_DEATH
			        && alive[n]
#endif
#ifndef NO_EPOCH
			        && row_epoch[n] == slot_epoch[n]
#endif
			        ));
			e = e + owns[n];
			n++
		:: else -> break
		od;
		assert(!pages || e > 0 || kills > 0 || given_up ||
		       (in_limbo && retired[OWNER]))
	}
}

init
{
	byte n, i;

	atomic {
		do
		:: n < ROWS -> hands[n] = NONE; n++
		:: else -> break
		od;
		n = 0;
		do
		:: i < MEMBERS ->
			n = 0;
			do
			:: n < ROWS - 1 -> n++
			:: !alive[n] -> break
			od;
#ifdef FORK
			if
			:: i == MEMBERS - 1 -> slot[i] = NONE
			:: else ->
#endif
			slot[i] = n;
			alive[n] = true;
			slot_epoch[n] = 1;
#ifdef ALL_HOLD
			row_epoch[n] = 1;
			hold[n] = true;
			owns[n] = true;
			generation = 1;
			pages = true;
#endif
#ifdef FORK
			fi;
#endif
			i++
		:: else -> break
		od;
#ifndef ALL_HOLD
		in_free = true;
#endif
		i = 0;
		do
		:: i < MEMBERS ->
			if
			:: slot[i] != NONE -> run member(i)
			:: else
			fi;
			i++
		:: else -> break
		od;
		run death();
		run judge()
	}
}
