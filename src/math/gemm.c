#include "math/gemm.h"

#include <cblas.h>
#include <pthread.h>

static void pin(void)
{
    openblas_set_num_threads(1);
}

cp_err cp_gemm_check(void)
{
    enum { SEQUENTIAL = 0 };
    if (openblas_get_parallel() == SEQUENTIAL) {
        return cp_fail(CP_E_CONFIG, "OpenBLAS is the serial build, which gives wrong results when "
                                    "several threads use it; install libopenblas0-pthread");
    }
    return CP_OK;
}

void cp_gemm_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, pin);
}

void cp_gemm(enum cp_trans op_a, enum cp_trans op_b, int m, int n, int k, cp_real alpha,
             const cp_real *a, int lda, const cp_real *b, int ldb, cp_real beta, cp_real *c,
             int ldc)
{
    CBLAS_TRANSPOSE ta = op_a == CP_T ? CblasTrans : CblasNoTrans;
    CBLAS_TRANSPOSE tb = op_b == CP_T ? CblasTrans : CblasNoTrans;
#ifdef CP_REAL_DOUBLE
    cblas_dgemm(CblasRowMajor, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
#else
    cblas_sgemm(CblasRowMajor, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
#endif
}
