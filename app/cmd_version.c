#include "app.h"

#include <stdio.h>

int cmd_version(const struct args *a)
{
    if (a->json) {
        printf("{\"version\": \"%s\"}\n", collapipe_version());
    } else {
        printf("collapipe %s\n", collapipe_version());
    }
    return COLLAPIPE_OK;
}
