/*
 * ckpt_impl: what the files of ckpt share.
 *
 *   ckpt.c         parameters: saving, loading, hashing; named tensors
 *   ckpt_config.c  config.json and tokenizer_config.json
 *   ckpt_folder.c  manifests, atomic folders, finding and pruning checkpoints
 */
#ifndef CP_MODEL_CKPT_IMPL_H
#define CP_MODEL_CKPT_IMPL_H

#include "model/ckpt.h"

#include <jansson.h>

/* A JSON object from a file; E_CKPT with line and column otherwise. The caller decrefs it. */
CP_NODISCARD cp_err cp_ckpt_read_json(const char *path, size_t max_bytes, json_t **out);

/* Writes DIR/FILE and decrefs json; NULL stands for "could not be built". */
CP_NODISCARD cp_err cp_ckpt_write_json(const char *dir, const char *file, json_t *json);

/* config.json and tokenizer_config.json. */
CP_NODISCARD cp_err cp_ckpt_write_config(const char *dir, const struct cp_ckpt_model *m);

#endif
