/* templates: configurations that `collapipe new` writes. */
#ifndef CP_API_TEMPLATES_H
#define CP_API_TEMPLATES_H

#include "data/wordnet.h"

struct cp_template {
    const char *name, *help;
    bool with_data;                  /* else only a configuration: for plan and simulate */
    enum cp_wordnet_classes classes; /* of its data */
    const char *config;              /* config.yaml, commented */
};

/* The first is the default; a NULL name ends the table. */
extern const struct cp_template CP_TEMPLATES[];

#endif
