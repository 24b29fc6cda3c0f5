/* folder: a temporary folder for the tests of one program; make_dir and remove_dir are set-up and
 * tear-down of cmocka. */
#ifndef TESTS_FOLDER_H
#define TESTS_FOLDER_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char dir[64];

static int make_dir(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/cp_test_XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    (void)state;
    char command[100];
    snprintf(command, sizeof command, "rm -r %s", dir);
    return system(command);
}

/* The path of a name in it; four results are valid at a time. */
static inline const char *in_dir(const char *name)
{
    static char path[4][128];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", dir, name);
    return path[turn];
}

#endif
