/* new: a folder to start from, with a commented configuration and real data. */
#include "api/internal.h"
#include "api/templates.h"
#include "data/dataset.h"
#include "data/wordnet.h"
#include "data/wptrain.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>

enum { HELDOUT_MODULUS = 10, VOCAB_SIZE = 8000 };

int collapipe_templates(char **json)
{
    json_t *list = json_array();
    for (int i = 0; CP_TEMPLATES[i].name; i++) {
        json_array_append_new(list, json_pack("{s:s, s:s}", "name", CP_TEMPLATES[i].name, "help",
                                              CP_TEMPLATES[i].help));
    }
    return cp_api_status(cp_api_dump(json_pack("{s:o}", "templates", list), json));
}

static cp_err find_template(const char *name, const struct cp_template **out)
{
    const char *names[16];
    size_t n = 0;
    for (; CP_TEMPLATES[n].name; n++) {
        names[n] = CP_TEMPLATES[n].name;
        if (strcmp(name, names[n]) == 0) {
            *out = &CP_TEMPLATES[n];
            return CP_OK;
        }
    }
    const char *near = cp_nearest(name, names, n);
    return cp_fail(CP_E_USAGE, "there is no template '%.40s'%s%s; collapipe new --list names them",
                   name, near ? ", did you mean " : "", near ? near : "");
}

static cp_err check_empty(const char *dir)
{
    DIR *d = opendir(dir);
    bool empty = true;
    if (!d) {
        return errno == ENOENT ? CP_OK
                               : cp_fail(CP_E_IO, "cannot use %s: %s", dir, strerror(errno));
    }
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        empty = empty && (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0);
    }
    closedir(d);
    return empty ? CP_OK
                 : cp_fail(CP_E_USAGE,
                           "the folder %s is not empty: nothing in it was changed; give "
                           "another name",
                           dir);
}

static cp_err write_set(const struct cp_dataset *ds, const char *dir, const char *name)
{
    struct cp_str path = {0};
    cp_err err = cp_api_path(dir, name, &path);
    if (!err) {
        err = cp_dataset_write_tsv(ds, path.p);
    }
    cp_str_fini(&path);
    return err;
}

/* The vocabulary is learned from the training texts alone. */
static cp_err write_vocab(const struct cp_dataset *train, const char *dir, int32_t *size)
{
    struct cp_vocab *v = NULL;
    struct cp_str path = {0};
    cp_err err = cp_wordpiece_train(train->text, train->len, train->n, true, VOCAB_SIZE, &v);
    if (!err) {
        err = cp_api_path(dir, "data/vocab.txt", &path);
    }
    if (!err) {
        *size = cp_vocab_size(v);
        err = cp_vocab_save(v, path.p);
    }
    cp_vocab_free(v);
    cp_str_fini(&path);
    return err;
}

static json_t *class_list(const struct cp_dataset *ds)
{
    json_t *list = json_array();
    for (int32_t i = 0; i < ds->n_classes; i++) {
        json_array_append_new(list, json_string(ds->class_name[i]));
    }
    return list;
}

static cp_err write_config(const char *dir, const struct cp_template *t)
{
    struct cp_str path = {0};
    cp_err err = cp_api_path(dir, "config.yaml", &path);
    if (!err) {
        err = cp_file_write(path.p, t->config, strlen(t->config));
    }
    cp_str_fini(&path);
    return err;
}

/* The configuration last: with it the folder is complete. */
static cp_err write_folder(const char *dir, const struct cp_template *t,
                           const struct cp_dataset *train, const struct cp_dataset *heldout,
                           json_t **out)
{
    struct cp_str path = {0};
    int32_t vocab = 0;
    cp_err err = cp_api_path(dir, "data", &path);
    if (!err) {
        err = cp_dir_make(path.p);
    }
    if (!err) {
        err = write_set(train, dir, "data/train.tsv");
    }
    if (!err) {
        err = write_set(heldout, dir, "data/heldout.tsv");
    }
    if (!err) {
        err = write_vocab(train, dir, &vocab);
    }
    if (!err) {
        err = write_config(dir, t);
    }
    cp_str_fini(&path);
    if (!err) {
        *out =
            json_pack("{s:s, s:s, s:I, s:I, s:o, s:i, s:[s,s,s,s]}", "dir", dir, "template",
                      t->name, "samples", (json_int_t)train->n, "heldout", (json_int_t)heldout->n,
                      "classes", class_list(train), "vocab", vocab, "files", "config.yaml",
                      "data/train.tsv", "data/heldout.tsv", "data/vocab.txt");
    }
    return err;
}

static cp_err make_with_data(const char *dir, const struct cp_template *t, json_t **out)
{
    struct cp_dataset all = {0}, train = {0}, heldout = {0};
    CP_TRY(cp_wordnet_read(CP_WORDNET_PATH, t->classes, &all));
    cp_err err = cp_dataset_split_hash(&all, HELDOUT_MODULUS, 0, &train, &heldout);
    if (!err) {
        err = write_folder(dir, t, &train, &heldout, out);
    }
    cp_dataset_fini(&all);
    cp_dataset_fini(&train);
    cp_dataset_fini(&heldout);
    return err;
}

static cp_err make(const char *dir, const char *name, json_t **out)
{
    const struct cp_template *t = NULL;
    CP_TRY(find_template(name ? name : CP_TEMPLATES[0].name, &t));
    CP_TRY(check_empty(dir));
    if (t->with_data) {
        return make_with_data(dir, t, out);
    }
    CP_TRY(cp_dir_make(dir));
    CP_TRY(write_config(dir, t));
    *out = json_pack("{s:s, s:s, s:[s]}", "dir", dir, "template", t->name, "files", "config.yaml");
    return CP_OK;
}

int collapipe_new(const char *dir, const char *template_name, char **json)
{
    json_t *doc = NULL;
    cp_err err = make(dir, template_name, &doc);
    if (!err) {
        err = cp_api_dump(doc, json);
    }
    return cp_api_status(err);
}
