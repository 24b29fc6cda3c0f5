/*
 * ckpt: Hugging Face folders in and out, and checkpoints that are whole or not there.
 *
 * A model folder holds config.json, model.safetensors (or shards with an index), vocab.txt and
 * tokenizer_config.json, as transformers loads them. A checkpoint is a model folder with
 * optimizer.safetensors and whatever else the caller writes, closed by manifest.json, which holds
 * size and SHA-256 of every other file. It is written to NAME.tmp and renamed when all of it is on
 * disk; a folder without a manifest that proves it is never resumed from.
 */
#ifndef CP_MODEL_CKPT_H
#define CP_MODEL_CKPT_H

#include "base/str.h"
#include "model/safetensors.h"
#include "model/shape.h"

/* ---- model folders ---- */

struct cp_ckpt_meta {
    struct cp_shape shape;
    int n_classes;
    char **class_names; /* [n_classes], owned */
    bool lower_case;    /* the tokenizer lower-cases and strips accents */
};
void cp_ckpt_meta_fini(struct cp_ckpt_meta *meta);

/* What is saved; everything is borrowed. */
struct cp_ckpt_model {
    const struct cp_shape *shape;
    const char *const *class_names;   /* [shape->classes] */
    const float *const *block_params; /* [cp_shape_blocks]: contiguous, in shape order */
    const char *vocab;                /* text of vocab.txt, one piece per line */
    size_t vocab_bytes;
    bool lower_case; /* the tokenizer lower-cases */
};

/* Writes the four files into dir, which exists. */
CP_NODISCARD cp_err cp_ckpt_save_model(const char *dir, const struct cp_ckpt_model *model);

/* Reads config.json and, if it is there, tokenizer_config.json: without it, or without its
 * do_lower_case, the tokenizer lower-cases, as in transformers. What we would compute differently
 * (another activation, relative positions, a decoder, accents that do not follow the case) is
 * E_CKPT that names it, never replaced. *out is owned by the caller on success. */
CP_NODISCARD cp_err cp_ckpt_load_meta(const char *dir, struct cp_ckpt_meta *out);

/* Reads parameters of every block whose pointer is not NULL. A missing or misshapen tensor is
 * E_CKPT that names it, and nothing is written. Accepted: F32, F16, BF16; LayerNorm.gamma and
 * .beta; names without "bert."; shards. new_head: tensors of the head that the file does not have
 * (or has for another number of classes) keep what their memory holds. Tensors that nobody asked
 * for are logged. */
CP_NODISCARD cp_err cp_ckpt_load_blocks(const char *dir, const struct cp_shape *shape,
                                        float *const *block_params, bool new_head);

/* Hash of the parameters as 64 hex digits: over all tensors in shape order, the bytes of the name,
 * a zero byte, the elements as little-endian floats. It does not depend on cuts or shards. */
enum { CP_SHA256_HEX = 65 };
void cp_params_sha256(const struct cp_shape *shape, const float *const *block_params,
                      char hex[CP_SHA256_HEX]);

/* ---- named tensors (optimizer state) ---- */

struct cp_ckpt_tensor {
    const char *name; /* "c0.<param>.exp_avg" */
    int32_t rank;
    int64_t dims[2];
    float *data; /* read by save, written by load */
};
CP_NODISCARD cp_err cp_ckpt_save_tensors(const char *path, const struct cp_ckpt_tensor *tensors,
                                         size_t n);

/* Every tensor must be in the file with this shape; otherwise E_CKPT, and nothing is written. */
CP_NODISCARD cp_err cp_ckpt_load_tensors(const char *path, const struct cp_ckpt_tensor *tensors,
                                         size_t n);

/* ---- checkpoint folders ---- */

/* Makes the empty folder RUN_DIR/NAME.tmp (what a crash left of it is removed) and puts its path
 * into tmp. name is checked as by cp_name_check(). */
CP_NODISCARD cp_err cp_ckpt_begin(const char *run_dir, const char *name, struct cp_str *tmp);

/* Syncs every file, writes manifest.json, renames NAME.tmp to NAME and syncs the run folder. A
 * checkpoint of that name is replaced in one step. */
CP_NODISCARD cp_err cp_ckpt_commit(const char *run_dir, const char *name);

/* E_CKPT with the first file that is missing, too many, or not as the manifest says. */
CP_NODISCARD cp_err cp_ckpt_verify(const char *dir);

/* Path of the checkpoint-<n> with the largest n that verifies. Others that had to be skipped are
 * logged with the reason. E_CKPT if there is none. */
CP_NODISCARD cp_err cp_ckpt_latest(const char *run_dir, struct cp_str *out);

/* Removes complete checkpoints but the newest keep (>= 1), and what interrupted saves left. Damaged
 * ones do not count, and stay for people to look at; damage is told by names and sizes, contents
 * are not hashed. So current, name or path of the checkpoint that the run stands on (NULL or "":
 * none), is never removed, and newer ones, which the run passed over, neither count nor are
 * removed. Only one process may work on a run folder. */
CP_NODISCARD cp_err cp_ckpt_prune(const char *run_dir, int keep, const char *current);

#endif
