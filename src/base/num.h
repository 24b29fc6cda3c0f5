/*
 * num: decimal numbers as text, the same in every locale.
 *
 * strtod and printf follow the locale of the process: under de_DE "2.5" would be read as 2 and
 * written as "2,5". Everything that reads or writes numbers for files goes through here.
 */
#ifndef CP_BASE_NUM_H
#define CP_BASE_NUM_H

#include <stdbool.h>
#include <stdint.h>

/* The whole text is one decimal number: [+-] digits [. digits] [e [+-] digits], at least one digit
 * before the exponent. False for anything else (hex, blanks, "nan", "inf", "2,5") and for what a
 * double cannot hold (1e400; 1e-400 too, which would become 0). */
bool cp_num_real(const char *text, double *out);

/* The whole text is one decimal integer of 64 bits: [+-] digits. */
bool cp_num_int(const char *text, int64_t *out);

/* The shortest text that reads back as x; "nan", "inf" or "-inf" if x is not finite. */
enum { CP_NUM_TEXT = 32 };
void cp_num_text(double x, char out[CP_NUM_TEXT]);

#endif
