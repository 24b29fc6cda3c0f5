/* label: the class number that means "no label": such a sample does not count in a loss. */
#ifndef CP_BASE_LABEL_H
#define CP_BASE_LABEL_H

enum { CP_LABEL_IGNORE = -100 };

#endif
