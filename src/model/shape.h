/*
 * shape: what the model looks like, and the one size function.
 *
 * A model is a list of blocks: block 0 is the embedding, blocks 1..L are encoder layers, block L+1
 * is the head (pooler + classifier). A segment is a range of consecutive blocks. Everything that
 * depends on size (the allocator, the plan's memory constraint, the radio payloads, the simulator)
 * asks cp_shape_cost(); nothing else knows how large anything is.
 */
#ifndef CP_MODEL_SHAPE_H
#define CP_MODEL_SHAPE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Arrays of one element per block have CP_LAYERS_LIMIT + 2 elements. */
enum { CP_LAYERS_LIMIT = 64 };

struct cp_shape {
    int32_t layers;  /* L, encoder layers, 1..CP_LAYERS_LIMIT */
    int32_t width;   /* D, hidden size */
    int32_t heads;   /* H, divides D */
    int32_t ffn;     /* F, intermediate size */
    int32_t max_len; /* rows of the position table, and the longest sequence */
    int32_t vocab;   /* V */
    int32_t types;   /* rows of the token type table, 2 in BERT */
    int32_t classes; /* C */
    double norm_eps; /* LayerNorm epsilon, 1e-12 in BERT */
    double dropout;  /* one rate for every dropout site, 0 <= p < 1 */
};

enum cp_block_kind { CP_BLOCK_EMB, CP_BLOCK_ENC, CP_BLOCK_HEAD };

static inline int cp_shape_blocks(const struct cp_shape *s)
{
    return s->layers + 2;
}

static inline enum cp_block_kind cp_shape_kind(const struct cp_shape *s, int block)
{
    return block == 0 ? CP_BLOCK_EMB : block <= s->layers ? CP_BLOCK_ENC : CP_BLOCK_HEAD;
}

/* E_CONFIG names the field that does not fit (heads must divide width, all sizes positive ...). */
CP_NODISCARD cp_err cp_shape_check(const struct cp_shape *s);

/* One parameter tensor of a block. Parameters of a block are contiguous, in this order; this
 * "shape order" (block by block, tensor by tensor) is also the order of uploads and of the hash. */
enum { CP_NAME_MAX = 96, CP_BLOCK_TENSORS_MAX = 24 };
struct cp_tensor_info {
    char name[CP_NAME_MAX]; /* Hugging Face BERT name, see docs/formats.md */
    int32_t rank;
    int64_t dims[2];
    int64_t offset; /* in elements from the start of the block */
    int64_t count;
    bool decay; /* weight decay applies (not to biases and LayerNorm) */
};

/* Fills out[] and returns how many tensors block has. Linear weights are [out, in]. */
int cp_shape_tensors(const struct cp_shape *s, int block,
                     struct cp_tensor_info out[CP_BLOCK_TENSORS_MAX]);

/* Elements of a block's parameters; of blocks first..last. */
int64_t cp_shape_params(const struct cp_shape *s, int first, int last);

/*
 * The cost of holding blocks first..last and running micro-batches of b samples of len tokens with
 * `slots` of them in flight, in a training build of fp32 (docs/theory.md section 3).
 * optim_words: optimizer words per weight (SGD 0, momentum 1, AdamW 2). Every piece of an arena is
 * rounded up to 64 bytes, and the small tables of a segment live in its weights arena, so these are
 * the bytes that cp_segment_new() counts, to the last one.
 */
struct cp_cost {
    int64_t params;        /* elements */
    size_t weight_bytes;   /* weights + gradients + optimizer state: the weights arena */
    size_t slot_bytes;     /* saved for backward, per slot; multiple of 64 */
    size_t scratch_bytes;  /* the scratch arena, incl. boundary tensors */
    size_t total_bytes;    /* weight + slots * slot + scratch: what the node counts, exactly */
    size_t boundary_bytes; /* a_0: one activation (or gradient) tensor B*T*D */
    double work_fwd_flops; /* per micro-batch */
    double work_bwd_flops;
};
struct cp_cost cp_shape_cost(const struct cp_shape *s, int first, int last, int b, int len,
                             int slots, int optim_words);

#endif
