#include "model/shape.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>

/* Products such as max_len * width must fit the int of BLAS. */
enum { SIZE_LIMIT = 1 << 15, ROWS_MAX = 1 << 24 };

static cp_err check_size(const char *field, int32_t value, int32_t least, int32_t most)
{
    if (value >= least && value <= most) {
        return CP_OK;
    }
    return cp_fail(CP_E_CONFIG, "model shape: %s is %d, it must be from %d to %d", field, value,
                   least, most);
}

cp_err cp_shape_check(const struct cp_shape *s)
{
    CP_TRY(check_size("layers", s->layers, 1, CP_LAYERS_LIMIT));
    CP_TRY(check_size("width", s->width, 1, SIZE_LIMIT));
    CP_TRY(check_size("heads", s->heads, 1, SIZE_LIMIT));
    CP_TRY(check_size("ffn", s->ffn, 1, ROWS_MAX));
    CP_TRY(check_size("max_len", s->max_len, 1, SIZE_LIMIT));
    CP_TRY(check_size("vocab", s->vocab, 1, ROWS_MAX));
    CP_TRY(check_size("types", s->types, 1, SIZE_LIMIT));
    CP_TRY(check_size("classes", s->classes, 2, SIZE_LIMIT));
    if (s->width % s->heads != 0) {
        return cp_fail(CP_E_CONFIG,
                       "model shape: heads is %d, which does not divide width %d; choose a divisor",
                       s->heads, s->width);
    }
    if (!(s->norm_eps > 0) || !isfinite(s->norm_eps)) {
        return cp_fail(CP_E_CONFIG, "model shape: norm_eps is %g, it must be above 0 (BERT: 1e-12)",
                       s->norm_eps);
    }
    if (!(s->dropout >= 0 && s->dropout < 1)) {
        return cp_fail(CP_E_CONFIG, "model shape: dropout is %g, it must be at least 0 and below 1",
                       s->dropout);
    }
    return CP_OK;
}

/* A tensor of a block before its sizes are known; a dimension is the offset of a shape field. */
struct form {
    const char *name;  /* after the prefix of the block */
    size_t rows, cols; /* cols NONE: rank 1 */
    bool decay;
};

#define DIM(field) offsetof(struct cp_shape, field)
#define NONE       SIZE_MAX

static const struct form emb_forms[] = {
    {"word_embeddings.weight", DIM(vocab), DIM(width), true},
    {"position_embeddings.weight", DIM(max_len), DIM(width), true},
    {"token_type_embeddings.weight", DIM(types), DIM(width), true},
    {"LayerNorm.weight", DIM(width), NONE, false},
    {"LayerNorm.bias", DIM(width), NONE, false},
};

static const struct form enc_forms[] = {
    {"attention.self.query.weight", DIM(width), DIM(width), true},
    {"attention.self.query.bias", DIM(width), NONE, false},
    {"attention.self.key.weight", DIM(width), DIM(width), true},
    {"attention.self.key.bias", DIM(width), NONE, false},
    {"attention.self.value.weight", DIM(width), DIM(width), true},
    {"attention.self.value.bias", DIM(width), NONE, false},
    {"attention.output.dense.weight", DIM(width), DIM(width), true},
    {"attention.output.dense.bias", DIM(width), NONE, false},
    {"attention.output.LayerNorm.weight", DIM(width), NONE, false},
    {"attention.output.LayerNorm.bias", DIM(width), NONE, false},
    {"intermediate.dense.weight", DIM(ffn), DIM(width), true},
    {"intermediate.dense.bias", DIM(ffn), NONE, false},
    {"output.dense.weight", DIM(width), DIM(ffn), true},
    {"output.dense.bias", DIM(width), NONE, false},
    {"output.LayerNorm.weight", DIM(width), NONE, false},
    {"output.LayerNorm.bias", DIM(width), NONE, false},
};

static const struct form head_forms[] = {
    {"bert.pooler.dense.weight", DIM(width), DIM(width), true},
    {"bert.pooler.dense.bias", DIM(width), NONE, false},
    {"classifier.weight", DIM(classes), DIM(width), true},
    {"classifier.bias", DIM(classes), NONE, false},
};

static int64_t dim(const struct cp_shape *s, size_t offset)
{
    return *(const int32_t *)(const void *)((const char *)s + offset);
}

static int block_forms(const struct cp_shape *s, int block, const struct form **out)
{
    switch (cp_shape_kind(s, block)) {
    case CP_BLOCK_EMB:
        *out = emb_forms;
        return sizeof emb_forms / sizeof *emb_forms;
    case CP_BLOCK_ENC:
        *out = enc_forms;
        return sizeof enc_forms / sizeof *enc_forms;
    default:
        *out = head_forms;
        return sizeof head_forms / sizeof *head_forms;
    }
}

int cp_shape_tensors(const struct cp_shape *s, int block,
                     struct cp_tensor_info out[CP_BLOCK_TENSORS_MAX])
{
    const struct form *forms;
    int n = block_forms(s, block, &forms);
    assert(n <= CP_BLOCK_TENSORS_MAX);
    char prefix[CP_NAME_MAX / 2] = "";
    if (cp_shape_kind(s, block) == CP_BLOCK_EMB) {
        snprintf(prefix, sizeof prefix, "bert.embeddings.");
    } else if (cp_shape_kind(s, block) == CP_BLOCK_ENC) {
        snprintf(prefix, sizeof prefix, "bert.encoder.layer.%d.", block - 1);
    }
    int64_t offset = 0;
    for (int i = 0; i < n; i++) {
        struct cp_tensor_info *o = &out[i];
        *o = (struct cp_tensor_info){
            .rank = forms[i].cols == NONE ? 1 : 2, .offset = offset, .decay = forms[i].decay};
        snprintf(o->name, sizeof o->name, "%s%s", prefix, forms[i].name);
        o->dims[0] = o->count = dim(s, forms[i].rows);
        if (o->rank == 2) {
            o->dims[1] = dim(s, forms[i].cols);
            o->count *= o->dims[1];
        }
        offset += o->count;
    }
    return n;
}

int64_t cp_shape_params(const struct cp_shape *s, int first, int last)
{
    int64_t sum = 0;
    for (int block = first; block <= last; block++) {
        const struct form *forms;
        int n = block_forms(s, block, &forms);
        for (int i = 0; i < n; i++) {
            sum += dim(s, forms[i].rows) * (forms[i].cols == NONE ? 1 : dim(s, forms[i].cols));
        }
    }
    return sum;
}
