/*
 * wordnet: noun glosses of WordNet 3.0 with their lexicographer file as class; a real task that
 * needs one Debian package (wordnet-base) and no download.
 */
#ifndef CP_DATA_WORDNET_H
#define CP_DATA_WORDNET_H

#include "data/dataset.h"

#define CP_WORDNET_PATH "/usr/share/wordnet/data.noun" /* where Debian's wordnet-base puts it */

enum cp_wordnet_classes {
    CP_WORDNET_8,  /* artifact person plant animal communication location substance food */
    CP_WORDNET_25, /* act animal ... time: lexicographer files 4 to 28 in order */
};

/* Reads data.noun: label = lexicographer file, text = what follows the first " | " (definition and
 * examples, blanks at the end removed, Latin-1 turned into UTF-8). Lines that begin with a blank
 * and synsets of other files are left out. The file is sorted by class: shuffle before use. E_IO
 * with a hint to the package if the file is not there, E_DATA with the line if it is not of this
 * form. */
CP_NODISCARD cp_err cp_wordnet_read(const char *path, enum cp_wordnet_classes set,
                                    struct cp_dataset *out);

#endif
