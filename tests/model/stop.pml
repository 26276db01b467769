/* SPDX-License-Identifier: MIT */
/*
 * Stops: a signal for threads that run (quiet/stop.h)
 *
 * A few threads and two provers, which take turns by a lock. SPIN tries every order of
 * the steps. park.pml has what is not about the signal: handlers of the program,
 * cancellation, vfork(), threads without a record.
 *
 *   thread   runs; parks in a call; runs again; blocks the signal for a while; ends
 *   prover   asks for the floor, signals those that run, waits for answers, moves pages;
 *            or loses patience at any time, and takes the signals back
 *   kernel   delivers a signal at any step of a thread that does not block it
 *
 * `pending` is the store buffer of `now`, as in park.pml.
 *
 * What is demanded:
 *
 *   - no write while pages are moved;
 *   - a signal never comes in a call: it would fail with EINTR;
 *   - no signal stays in a queue when the floor is given back;
 *   - nobody sleeps for ever.
 */
#ifndef THREADS
#define THREADS 2
#endif
#ifndef PROVERS
#define PROVERS 2
#endif
#define EMPTY 255

/* Values of `now`. */
#define RUNS 0
#define WAITS 1
#define STOPPED 2
#define CALL 3

bool floor, lock;
byte now[THREADS], pending[THREADS], asked[THREADS], answered[THREADS], request;

/* The kernel's and the truth's. */
byte queued[THREADS]; /* the number that the signal carries; 0: there is none */
bool blocked[THREADS], handles[THREADS];
bool in_call[THREADS], asleep[THREADS], exists[THREADS];
bool moving;

#define OWN(t) (pending[t] != EMPTY -> pending[t] : now[t])

inline drain(t)
{
	atomic {
		if
		:: pending[t] != EMPTY -> now[t] = pending[t]; pending[t] = EMPTY
		:: else
		fi
	}
}

#define store(t, v) pending[t] = v

/* Sleeps until the floor is given back. A signal ends the sleep; the loop goes on. */
inline sleep_out(t)
{
	do
	:: atomic { floor -> asleep[t] = true }
		!asleep[t]
	:: !floor -> break
	od
}

/* cow__park_wait() */
inline wait(t)
{
	do
	:: store(t, WAITS);
		sleep_out(t);
		store(t, RUNS);
		drain(t);
		if
		:: !floor -> break
		:: else
		fi
	od
}

/* preload_park_slowly(), a call, preload_unpark() */
inline call(t)
{
	store(t, CALL);
#if defined(FENCES) && !defined(PARK_UNFENCED)
	drain(t);
#endif
#ifndef PARK_ONCE
	if
	:: floor -> sleep_out(t)
	:: else
	fi;
#endif
	in_call[t] = true;
	/* Anything may come to the thread here, but the signal. */
	in_call[t] = false;
	store(t, RUNS);
#if defined(FENCES) && !defined(LEAVE_UNFENCED)
	drain(t);
#endif
	if
	:: floor -> wait(t)
	:: else
	fi
}

/* Runs while no handler does. */
proctype code(byte me) provided (!handles[me])
{
	do
	:: atomic { true -> assert(!moving) } /* a write */
	:: call(me)
#ifdef MASKS
	:: blocked[me] = !blocked[me]
#endif
	:: break
	od;
	atomic {
		drain(me);
		exists[me] = false;
		queued[me] = 0
	}
}

#ifdef NO_NUMBERS
#define answer(t) answered[t] = asked[t]
#else
#define answer(t) answered[t] = number
#endif

/* cow__stop_here() */
proctype handler(byte me)
{
	bool stays;
	byte number;

end:
	do
	:: atomic {
		queued[me] && !blocked[me] && exists[me] && !handles[me] ->
			number = queued[me];
			queued[me] = 0;
			handles[me] = true;
			asleep[me] = false;
			assert(!in_call[me]);
			stays = OWN(me) == RUNS
	   }
		if
		:: stays -> store(me, STOPPED)
		:: else
		fi;
		atomic { drain(me); answer(me) } /* a release */
		do
		:: !stays -> break
		:: stays ->
			sleep_out(me);
			store(me, RUNS);
			drain(me);
#ifdef STAY_ONCE
			break
#else
			if
			:: !floor -> break
			:: else -> store(me, STOPPED)
			fi
#endif
		od;
		atomic { handles[me] = false; stays = false; number = 0 }
	od
}

/* Empties the store buffers, some time. */
proctype memory()
{
end:
	do
	:: atomic { pending[0] != EMPTY -> now[0] = pending[0]; pending[0] = EMPTY }
#if THREADS > 1
	:: atomic { pending[1] != EMPTY -> now[1] = pending[1]; pending[1] = EMPTY }
#endif
	od
}

/* The signals that are on their way. */
inline take_back()
{
#ifndef NO_TAKE_BACK
	atomic {
		n = 0;
		do
		:: n < THREADS -> queued[n] = 0; n++
		:: n == THREADS -> n = 0; break
		od
	}
#else
	skip
#endif
}

inline ask()
{
	do
	:: atomic { n < THREADS && (!exists[n] || now[n] != RUNS) -> n++ }
	:: n < THREADS && exists[n] && now[n] == RUNS ->
		asked[n] = request;
		/* The kernel says if the thread has ended. */
		atomic {
			if
			:: exists[n] -> queued[n] = request
			:: else -> asked[n] = 0
			fi;
			n++
		}
	:: atomic { n == THREADS -> n = 0; break }
	od
}

/* A thread that was asked has answered, or ended. One that was not is parked. */
inline look()
{
	do
	:: atomic {
		n < THREADS &&
		(!exists[n] || asked[n] != request || answered[n] == request) ->
			n++
	   }
	:: atomic { n == THREADS -> n = 0; break }
	:: atomic { n < THREADS -> goto gives_up } /* out of patience */
	od
}

/* cow__park_begin() with stops, cow__park_end() */
proctype prover()
{
	byte n;
	bool turns;

	do
	:: turns < 1 ->
		turns = true;
		atomic { !lock -> lock = true; request++ }
		floor = true;
#if !defined(NO_MEMBARRIER) && !defined(FENCES)
		do
		:: atomic { n < THREADS -> drain(n); n++ }
		:: atomic { n == THREADS -> n = 0; break }
		od;
#endif
		ask();
#ifndef NO_WAIT
		look();
#endif
		moving = true;
		moving = false;
		goto over;
gives_up:
		n = 0;
#ifdef FLOOR_FIRST
		floor = false;
#endif
		take_back();
over:
		/* As the floor goes, no signal is on its way. */
		atomic {
			do
			:: n < THREADS ->
				assert(!queued[n] || !exists[n]);
				n++
			:: n == THREADS -> n = 0; break
			od;
			floor = false;
#ifndef NO_WAKE
			do
			:: n < THREADS -> asleep[n] = false; n++
			:: n == THREADS -> n = 0; break
			od;
#endif
			lock = false
		}
	:: turns -> break
	od
}

init
{
	byte t;

	atomic {
		do
		:: t < THREADS ->
			pending[t] = EMPTY;
			exists[t] = true;
			run code(t);
			run handler(t);
			t++
		:: else -> break
		od;
		run memory();
		t = 0;
		do
		:: t < PROVERS -> run prover(); t++
		:: else -> break
		od
	}
}
