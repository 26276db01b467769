/* SPDX-License-Identifier: MIT */
/*
 * The module: its parts and constants. See base.h.
 */
#include "python/_cowshed/base.h"

static int add_constants(PyObject *m)
{
	static const struct {
		const char *name;
		long value;
	} all[] = {
		{"ALIAS", COW_SHARE_ALIAS},
		{"CLONE", COW_SHARE_CLONE},
		{"SEALED", COW_SHARE_SEALED},
		{"FD", COW_STRATEGY_FD},
		{"BROKER", COW_STRATEGY_BROKER},
		{"JOIN", COW_CHANNEL_JOIN},
		{"TAKE_ALIASES", COW_CHANNEL_TAKE_ALIASES},
		{"SAME_USER", COW_CHANNEL_SAME_USER},
		{"LABELS", COW_CHANNEL_LABELS},
		{"LABEL_BYTES", COW_LABEL_BYTES},
		{"NOTE_MAX", COW_NOTE_MAX},
		{"START", COW_BROKER_START},
		{"ANY_USER", COW_BROKER_ANY_USER},
		{"EPHEMERAL", COW_BROKER_EPHEMERAL},
		{"ONCE", COW_BROKER_ONCE},
		{"FILE_SHARED", COW_FILE_SHARED},
		{"FILE_SHM", COW_FILE_SHM},
		{"FILE_EXCLUSIVE", COW_FILE_EXCLUSIVE},
		{"FILE_NO_CREATE", COW_FILE_NO_CREATE},
		{"FILE_KEEP_FD", COW_FILE_KEEP_FD},
		{"FILE_UNLINK", COW_FILE_UNLINK},
		{"IO_DIRECT", COW_IO_DIRECT},
		{"SAVE_SYNC", COW_SAVE_SYNC},
		{"SAVE_ATOMIC", COW_SAVE_ATOMIC},
		{"SAVE_TRUNCATE", COW_SAVE_TRUNCATE},
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (PyModule_AddIntConstant(m, all[i].name, all[i].value) < 0)
			return -1;
	return 0;
}

static struct PyModuleDef definition = {
	PyModuleDef_HEAD_INIT,
	.m_name = "cowshed._cowshed",
	.m_doc = "The handles and calls of cowshed's public headers, as Python objects.",
	.m_size = -1,
};

PyMODINIT_FUNC PyInit__cowshed(void);

PyMODINIT_FUNC PyInit__cowshed(void)
{
	PyObject *m = PyModule_Create(&definition);

#ifdef Py_GIL_DISABLED
	if (m && PyUnstable_Module_SetGIL(m, Py_MOD_GIL_NOT_USED) < 0)
		Py_CLEAR(m);
#endif
	if (m &&
	    (add_constants(m) < 0 || storage_init(m) < 0 ||
	     sources_init(m) < 0 || group_init(m) < 0 || channel_init(m) < 0 ||
	     broker_init(m) < 0 ||
	     lock_init(m) < 0 || stats_init(m) < 0 || pickle_init(m) < 0 ||
	     freeze_init(m) < 0 || hook_init(m) < 0 || rewrite_init(m) < 0 ||
	     sites_init(m) < 0 || guard_init(m) < 0))
		Py_CLEAR(m);
	return m;
}
