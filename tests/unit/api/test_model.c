/* model: what opening a model folder takes, whatever is in the folder. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "base/mem.h"
#include "model/ckpt.h"

#include <collapipe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Long sequences: the probabilities of attention are 32 MiB a sample. */
static const struct cp_shape LONG = {.layers = 2,
                                     .width = 8,
                                     .heads = 4,
                                     .ffn = 8,
                                     .max_len = 1024,
                                     .vocab = 6,
                                     .types = 2,
                                     .classes = 2,
                                     .norm_eps = 1e-12,
                                     .dropout = 0.1};
enum { BLOCKS = 4, N_TEXTS = 21 };

static char dir[64];

static int set_up(void **state)
{
    static const char VOCAB[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n";
    static const char *const NAMES[] = {"no", "yes"};
    float *block[BLOCKS];
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/cp-model-XXXXXX");
    assert_non_null(mkdtemp(dir));
    for (int b = 0; b < BLOCKS; b++) {
        int64_t n = cp_shape_params(&LONG, b, b);
        assert_int_equal(cp_mem_array(NULL, (size_t)n, sizeof *block[b], &block[b]), CP_OK);
        for (int64_t i = 0; i < n; i++) {
            block[b][i] = (float)(i % 7 - 3) / 8;
        }
    }
    struct cp_ckpt_model m = {.shape = &LONG,
                              .class_names = NAMES,
                              .block_params = (const float *const *)block,
                              .vocab = VOCAB,
                              .vocab_bytes = sizeof VOCAB - 1,
                              .lower_case = true};
    assert_int_equal(cp_ckpt_save_model(dir, &m), CP_OK);
    for (int b = 0; b < BLOCKS; b++) {
        cp_mem_free(block[b]);
    }
    return 0;
}

static int tear_down(void **state)
{
    char cmd[96];
    (void)state;
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", dir);
    return system(cmd);
}

/* Bytes of this process's address space. */
static long long mapped(void)
{
    long long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%lld", &pages), 1);
    fclose(f);
    return pages * sysconf(_SC_PAGESIZE);
}

/* The activations of sixteen samples would take more than 512 MiB. */
static void long_sequences_take_fewer_samples(void **state)
{
    (void)state;
    collapipe_model *m = NULL;
    char *out = NULL;
    const char *texts[N_TEXTS];
    long long before = mapped();
    assert_int_equal(collapipe_model_open(dir, &m), COLLAPIPE_OK);
    assert_true(mapped() - before < 400LL << 20);
    for (int i = 0; i < N_TEXTS; i++) { /* more than one batch, and a part of one */
        texts[i] = i % 2 ? "a" : "a a b";
    }
    assert_int_equal(collapipe_predict(m, texts, N_TEXTS, &out), COLLAPIPE_OK);
    int n = 0;
    for (const char *p = out; (p = strstr(p, "\"label\"")) != NULL; p++) {
        n++;
    }
    assert_int_equal(n, N_TEXTS);
    collapipe_free(out);
    collapipe_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_sequences_take_fewer_samples),
    };
    collapipe_log(0, NULL, NULL);
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
