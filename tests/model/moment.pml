/* SPDX-License-Identifier: MIT */
/*
 * The turns of a process and the child that holds its moment (memfd/moment.c)
 *
 *   process   asks for some bytes, READS times, then says that it is over, and waits for the end
 *   child     answers, or ends when it is over, or when the process has gone
 *   somebody  kills either of them at any step
 *
 * A process that executes a program has gone, too. Not modelled: the kill after the end was asked for,
 * for a child that somebody stopped, and how the child finds out that the process has gone.
 *
 * A sleep ends when the word has changed, when its time has passed, or for no reason. SPIN tries
 * every order of the steps.
 *
 * What is demanded:
 *
 *   - what the process takes for an answer was copied by the child for this question;
 *   - the child writes the buffer in no other turn than its own;
 *   - nobody waits for ever, whoever is killed;
 *   - no child is left when the call has returned, nor when the process was killed.
 */
#ifndef READS
#define READS 2
#endif

#define IDLE 0
#define ASKED 1
#define OVER 2

byte turn, question, buffer;
bool child_alive, parent_alive;

proctype child()
{
	byte seen;

	do
	:: !child_alive -> break
	:: child_alive ->
		if
		:: atomic { turn == OVER -> child_alive = false; break }
		:: atomic { !parent_alive -> child_alive = false; break }
		:: turn == ASKED ->
			seen = question;
#ifdef ANSWER_FIRST
			turn = IDLE;
#endif
			/* A child that was killed writes no more. */
			if
			:: atomic { child_alive ->
				assert(!parent_alive || turn == ASKED);
				buffer = seen }
			:: !child_alive -> break
			fi;
#ifndef ANSWER_FIRST
			if
			:: atomic { child_alive -> turn = IDLE }
			:: !child_alive -> break
			fi
#endif
		/* sleep_while(IDLE): until the word is another one, or the limit has passed */
#ifdef NO_LIMIT
		:: turn == IDLE -> turn != IDLE || !child_alive
#else
		:: turn == IDLE -> turn != IDLE || !child_alive || !parent_alive
#endif
		fi
	od
}

proctype parent()
{
	byte n = 0;
	bool lost = false;

	do
	:: !parent_alive -> goto end
	:: parent_alive && n < READS && !lost ->
		n++;
		question = n;
		turn = ASKED;
		do
		:: !parent_alive -> goto end
		:: turn == IDLE -> assert(buffer == n); break
#ifndef NO_LOOK
		/* After a while it looks whether the child has ended. It looks at the word again before. */
		:: atomic { turn == ASKED && !child_alive -> lost = true; break }
#endif
		od
	:: parent_alive && (n == READS || lost) -> break
	od;
	if
	:: lost
	:: else ->
#ifndef NOT_OVER
		turn = OVER;
#endif
		!child_alive || !parent_alive
	fi;
	assert(!parent_alive || !child_alive);
end:
	skip
}

proctype killer()
{
	if
	:: atomic { child_alive = false }
	:: atomic { parent_alive = false }
	:: skip
	fi
}

init {
	atomic {
		child_alive = true;
		parent_alive = true;
		run child();
		run parent();
		run killer()
	}
}
