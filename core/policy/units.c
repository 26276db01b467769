/* SPDX-License-Identifier: MIT */
/*
 * Whether the next huge page that several blocks share is committed: see the header.
 */
#include "core/policy/units.h"
#include "core/policy/constants.h"

void
cow__units_in_vain(struct cow__units *u)
{
	u->debt = COW__UNIT_DEBT;
}

bool
cow__units_due(struct cow__units *u, enum cow__filled before)
{
	switch (before) {
	case COW__FILLED_NO:
		u->proofs = u->left = u->last = 0;
		return false;
	case COW__FILLED_ZEROS:
		if (u->proofs < COW__UNIT_PROOFS && ++u->proofs < COW__UNIT_PROOFS)
			return false;
		if (!u->left)
			u->left = u->last = cow__max(COW__UNIT_PROOFS,
			                             cow__min(2 * u->last, COW__UNIT_TRUST_MOST));
		break;
	case COW__FILLED_UNCLEAR:
		if (!u->left)
			return false;
		u->left--;
		break;
	case COW__FILLED_YES:
		break;
	}
	if (!u->debt)
		return true;
	u->debt--;
	return false;
}
