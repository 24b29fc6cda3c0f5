/*
 * name: the one check of names that become file names (runs, checkpoints, shards, files of a
 * manifest) when they come from outside: a name stays inside its folder.
 */
#ifndef CP_BASE_NAME_H
#define CP_BASE_NAME_H

#include "base/err.h"

enum { CP_FILE_NAME_MAX = 200 }; /* bytes; leaves room for endings within the usual 255 */

/* Fails with code if name is empty, longer than CP_FILE_NAME_MAX, starts with a dot, or holds a
 * slash, a backslash or a control character. what is for the sentence: "the run name". */
CP_NODISCARD cp_err cp_name_check(cp_err code, const char *what, const char *name);

#endif
