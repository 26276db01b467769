/* SPDX-License-Identifier: MIT */
/*
 * Rewrites on other pages: cow__rewrite_begin(), cow__rewrite_end() (core/cow/rewrite.h)
 *
 * One block, three places for its pages, a writer, and what others do meanwhile:
 * clones come and go, a child is forked, looks, frees and dies, memory is thawed and
 * given back, freed pages serve somebody else. SPIN tries every order of the steps.
 * A step is what the code does under the engine's lock, or a write without it.
 *
 *   block:   shows (a place), shared or private; copied: its bytes are in no place
 *   place:   refs, open; hold (the child holds it)     OWN is the block's own place
 *   child:   its own refs
 *
 * Beside it stands the truth: `value` is what the program wrote last, `seen` and
 * `born` what the clone and the child must see. Values count to three and begin again.
 * What is demanded:
 *
 *   - every look finds its value: never the half of a computation, nor the bytes of
 *     somebody else;
 *   - who is not there holds nothing, and each reference has an owner.
 *
 * rewrite.sh says which instances are tried, and which protections are taken away to
 * see that the model notices.
 */
#define OWN 0
#define PLACES 3
#define NONE 3

#define HALF 3 /* of a computation */
#define JUNK 4 /* somebody else's, or nothing */
#define NEXT(v) (((v) + 1) % 3)

/* A place is free, or it has pages for the block. */
bool used[PLACES], hold[PLACES];
byte content[PLACES], refs[PLACES], open[PLACES];

byte shows, spare = NONE, view = NONE, target = NONE;
bool shared, copied;
byte value, seen;

bool alive, childs; /* the child, and its block */
byte crefs[PLACES], cshows, cview = NONE, born, cseen;
bool ccopied;

#define OTHERS(p) (hold[p] && alive)
#define IS_FREE(p) (!used[p] && p != OWN)

/* Nobody here reads the pages any more. */
inline unref(p)
{
	assert(refs[p] > 0);
	refs[p] = refs[p] - 1;
	if
	:: refs[p] == 0 && p != OWN && !OTHERS(p) -> used[p] = false; hold[p] = false
	:: else /* in limbo, or the block's */
	fi
}

/* What waited in limbo for the child, and what others do with free memory. */
inline poll_limbo()
{
	do
	:: n < PLACES ->
		if
		:: n != OWN && used[n] && refs[n] == 0 && !OTHERS(n) ->
			used[n] = false;
			hold[n] = false
		:: else
		fi;
		if
		:: IS_FREE(n) -> content[n] = JUNK
		:: else
		fi;
		n++
	:: else -> n = 0; break
	od
}

/* A write of the program to its block. */
inline write(v)
{
	if
	:: shared -> content[shows] = v
	:: else -> copied = true
	fi;
	value = v
}

#ifdef NO_CENSUS
#define ALONE(p) true
#else
#define ALONE(p) !OTHERS(p)
#endif

/* cow__target_for() */
inline target_for()
{
	if
	:: spare != NONE && refs[spare] == 1 && ALONE(spare) -> target = spare; spare = NONE
	:: shows != OWN && refs[OWN] == 0 && ALONE(OWN) ->
		target = OWN;
#ifndef NO_REF
		refs[OWN] = 1
#endif
	:: IS_FREE(1) -> target = 1; used[1] = true; refs[1] = 1; content[1] = JUNK
	:: IS_FREE(2) -> target = 2; used[2] = true; refs[2] = 1; content[2] = JUNK
	:: else
	fi
}

/* cow__target_show(): the target takes the place of what the block shows. */
inline replace()
{
	n = shows;
	refs[target] = refs[target] + 1;
	shows = target;
	shared = true;
	copied = false;
	if
	:: n != OWN && spare == NONE -> spare = n /* its reference with it */
	:: else -> unref(n)
	fi;
	n = 0
}

inline release()
{
#ifndef NO_OPEN
	open[target] = open[target] - 1;
#endif
#ifdef NO_REF
	if
	:: target != OWN -> unref(target)
	:: else
	fi;
#else
#ifndef NO_RELEASE
	unref(target);
#endif
#endif
	target = NONE
}

proctype writer()
{
	byte n;

end:
	do
	:: atomic { write(NEXT(value)) }
	:: atomic { /* cow__rewrite_begin() */
		!shared && (refs[shows] > 1 || OTHERS(shows)) ->
		target_for();
		if
		:: target != NONE
		:: else -> goto end
		fi;
#ifndef NO_OPEN
		open[target] = open[target] + 1;
#endif
#ifdef SHOWN_AT_ONCE
		replace()
#endif
	   }
	   content[target] = HALF;
	   content[target] = NEXT(value);
	   /* cow__rewrite_end() */
	   if
#ifndef SHOWN_AT_ONCE
	   :: atomic { !shared -> replace(); value = NEXT(value) }
#else
	   :: atomic { value = NEXT(value) }
#endif
	   :: true -> /* its pages can't be shown: they are copied, without the lock */
#ifdef RELEASE_FIRST
		atomic { n = target; release() }
		atomic { assert(content[n] == NEXT(value)); write(NEXT(value)); n = 0 }
		goto end
#else
		atomic { assert(content[target] == NEXT(value)); write(NEXT(value)) }
#endif
	   :: true /* given up */
	   fi;
	   atomic { release() }
	od
}

/* Clones, healing, memory that goes back. All of it is under the lock. */
proctype others()
{
	byte n;

end:
	do
#ifndef NO_CLONES
	:: atomic {
		view == NONE && !copied ->
			shared = false;
			view = shows;
			refs[view] = refs[view] + 1;
			seen = value
	   }
	:: atomic { view != NONE -> n = view; view = NONE; seen = 0; unref(n); n = 0 }
#endif
	:: atomic {
		!shared && refs[shows] == 1 && !OTHERS(shows) ->
			if
			:: copied -> content[shows] = value; copied = false
			:: else
			fi;
			shared = true
	   }
	:: atomic { spare != NONE -> n = spare; spare = NONE; unref(n); n = 0 }
	:: atomic {
		shows != OWN && refs[OWN] == 0 && !OTHERS(OWN) ->
			hold[OWN] = false;
			content[OWN] = JUNK
	   }
	:: atomic { true -> poll_limbo() }
	od
}

/* Only the rewriting process shows what is open: the child forgets these references
 * (cow__spares_child()), and what nobody shows there holds nothing. */
inline inherit()
{
	do
	:: n < PLACES ->
		hold[n] = refs[n] > open[n];
		crefs[n] = refs[n] - open[n] - (n == spare -> 1 : 0);
#ifndef CHILD_KEEPS_SPARES
		hold[n] = hold[n] && crefs[n] > 0;
#endif
		n++
	:: else -> n = 0; break
	od
}

inline child_unref(p)
{
	crefs[p] = crefs[p] - 1;
	if
	:: crefs[p] == 0 ->
		hold[p] = false;
		/* The last one gives them back. */
		if
		:: refs[p] == 0 && p != OWN -> used[p] = false; content[p] = JUNK
		:: else
		fi
	:: else
	fi
}

proctype child()
{
	byte n;

end:
	do
	:: atomic {
		!alive ->
			shared = false; /* frozen */
			inherit();
			cshows = shows;
			ccopied = copied;
			cview = view;
			cseen = seen;
			born = value;
			alive = true;
			childs = true
	   }
	:: atomic { childs && !ccopied -> assert(content[cshows] == born) }
	:: atomic { childs && cview != NONE -> assert(content[cview] == cseen) }
	:: atomic { childs -> ccopied = true } /* it writes */
	:: atomic {
		childs ->
			childs = false;
			child_unref(cshows);
			if
			:: cview != NONE -> child_unref(cview); cview = NONE
			:: else
			fi;
			ccopied = false;
			cshows = 0;
			cseen = 0;
			born = 0;
			do
			:: n < PLACES -> assert(!hold[n]); crefs[n] = 0; n++
			:: else -> n = 0; break
			od
	   }
	:: atomic { /* killed: its bits stay */
		alive ->
			alive = false;
			childs = false;
			ccopied = false;
			cview = NONE;
			cshows = 0;
			cseen = 0;
			born = 0;
			do
			:: n < PLACES -> crefs[n] = 0; n++
			:: else -> n = 0; break
			od
	   }
	od
}

/* At every moment. */
proctype judge()
{
	byte n;

end:
	do
	:: atomic { !copied -> assert(content[shows] == value) }
	:: atomic { view != NONE -> assert(content[view] == seen) }
#ifndef NO_REF
	:: atomic {
		true ->
		do
		:: n < PLACES ->
			assert(refs[n] == (shows == n) + (spare == n) + (view == n) +
			       (target == n));
			assert(refs[n] == 0 || n == OWN || used[n]);
			n++
		:: else -> n = 0; break
		od
	   }
#endif
	od
}

init
{
	atomic {
		used[OWN] = true;
		refs[OWN] = 1;
		shared = true;
		run writer();
		run others();
#ifndef NO_CHILD
		run child();
#endif
		run judge()
	}
}
