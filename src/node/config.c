#include "node/config.h"

#include <stddef.h>

#define AT(field)       offsetof(struct cp_config, field)
#define IN(type, field) offsetof(struct type, field)

static const char *const MODEL_KINDS[] = {"bert", NULL};
static const char *const TASKS[] = {"classify", NULL};
static const char *const PARTITIONS[] = {"iid", "dirichlet", NULL};
static const char *const OPTIMIZERS[] = {"sgd", "adamw", NULL};
static const char *const DECAYS[] = {"constant", "linear", NULL};
static const char *const BATCH_MODES[] = {"fixed-b", "fixed-batch", NULL};
static const char *const ORDERS[] = {"seq", "gpipe", "1f1b", "auto", NULL};
static const char *const AGGREGATORS[] = {"fedavg", NULL};
static const char *const MOMENTS[] = {"keep", "reset", NULL};
static const char *const WEIGHTS[] = {"data", "trained", NULL};
static const char *const NETS[] = {"inproc", NULL};
static const char *const RADIOS[] = {"static", "rayleigh", "rician", NULL};
static const char *const CHANGES[] = {"leave", "join", "rate", NULL};

/* The fields of a device; prefix "cu." in a cluster's own table. */
#define DEVICE_OPTIONS(PREFIX, TYPE, BASE)                                                         \
    {.key = PREFIX "gflops", .type = CP_OPT_REAL, .offset = IN(TYPE, BASE gflops), .def = "8",     \
     .min = 1e-3, .max = 1e6, .unit = "GFLOP/s", .symbol = "nu_k", .help = "compute rate"},        \
    {.key = PREFIX "mem_mib", .type = CP_OPT_REAL, .offset = IN(TYPE, BASE mem_mib),               \
     .def = "1024", .min = 0, .max = 1e9, .unit = "MiB", .symbol = "Mem_k",                        \
     .help = "memory that training may use: a hard limit"},                                        \
    {.key = PREFIX "energy_pj_per_flop", .type = CP_OPT_REAL,                                      \
     .offset = IN(TYPE, BASE energy_pj_per_flop), .def = "25", .min = 0, .max = 1e6,               \
     .unit = "pJ/FLOP", .symbol = "epsilon_k", .help = "energy per operation"},                    \
    {.key = PREFIX "budget_j", .type = CP_OPT_REAL, .offset = IN(TYPE, BASE budget_j),             \
     .def = "0", .min = 0, .max = 1e12, .unit = "J/round", .symbol = "E_k",                        \
     .help = "energy per round to keep on average; 0: no limit"},                                  \
    {.key = PREFIX "x_m", .type = CP_OPT_REAL, .offset = IN(TYPE, BASE x_m), .def = "0",           \
     .min = -1e5, .max = 1e5, .unit = "m", .help = "position, the control unit is near (0, 0)"},   \
    {.key = PREFIX "y_m", .type = CP_OPT_REAL, .offset = IN(TYPE, BASE y_m), .def = "0",           \
     .min = -1e5, .max = 1e5, .unit = "m"}

static const struct cp_opt DEVICE_TABLE[] = {
    {.key = "name", .type = CP_OPT_STRING, .offset = IN(cp_config_device, name), .required = true,
     .help = "short name, unique in its cluster"},
    DEVICE_OPTIONS("", cp_config_device, ),
    {0},
};

static const struct cp_opt CLUSTER_TABLE[] = {
    {.key = "name", .type = CP_OPT_STRING, .offset = IN(cp_config_cluster, name), .required = true,
     .help = "short name, unique"},
    {.key = "distance_m", .type = CP_OPT_REAL, .offset = IN(cp_config_cluster, distance_m),
     .def = "100", .min = 1, .max = 1e5, .unit = "m",
     .help = "control unit to base station of the edge server"},
    DEVICE_OPTIONS("cu.", cp_config_cluster, cu.),
    {.key = "devices", .type = CP_OPT_LIST, .offset = IN(cp_config_cluster, devices),
     .item = DEVICE_TABLE, .item_size = sizeof(struct cp_config_device), .item_max = 16,
     .help = "devices of the cluster"},
    {0},
};

static const struct cp_opt CHANGE_TABLE[] = {
    {.key = "round", .type = CP_OPT_INT, .offset = IN(cp_config_change, round), .required = true,
     .min = 1, .max = 1e9, .help = "first round in which the change holds, from 1"},
    {.key = "node", .type = CP_OPT_STRING, .offset = IN(cp_config_change, node), .required = true,
     .help = "CLUSTER.DEVICE"},
    {.key = "kind", .type = CP_OPT_CHOICE, .offset = IN(cp_config_change, kind), .required = true,
     .choices = CHANGES, .help = "what happens to the device"},
    {.key = "factor", .type = CP_OPT_REAL, .offset = IN(cp_config_change, factor), .def = "1",
     .min = 1e-3, .max = 1e3, .help = "kind rate: multiple of the configured speed"},
    {0},
};

const struct cp_opt CP_CONFIG_TABLE[] = {
    {.key = "seed", .type = CP_OPT_INT, .offset = AT(seed), .def = "1", .min = 0, .max = 1e15,
     .help = "fixes every random number of the run"},
    {.key = "deterministic", .type = CP_OPT_BOOL, .offset = AT(deterministic), .def = "true",
     .help = "pin what must be pinned for bitwise equal results (one thread per node)"},

    {.key = "run.dir", .type = CP_OPT_STRING, .offset = AT(run.dir), .def = "runs",
     .help = "folder of run folders and runs.sqlite, from the config file's folder"},
    {.key = "run.name", .type = CP_OPT_STRING, .offset = AT(run.name), .def = "run",
     .help = "first part of the run folder's name"},
    {.key = "run.keep", .type = CP_OPT_INT, .offset = AT(run.keep), .def = "2", .min = 1,
     .max = 1e6, .help = "newest checkpoints that are kept"},
    {.key = "run.save_every", .type = CP_OPT_INT, .offset = AT(run.save_every), .def = "1",
     .min = 1, .max = 1e6, .unit = "rounds", .help = "rounds between checkpoints (the last always)"},
    {.key = "run.events", .type = CP_OPT_INT, .offset = AT(run.events), .def = "200000", .min = 0,
     .max = 1e8, .help = "most op events kept for trace.json"},

    {.key = "model.kind", .type = CP_OPT_CHOICE, .offset = AT(model.kind), .def = "bert",
     .choices = MODEL_KINDS, .help = "family of the model"},
    {.key = "model.layers", .type = CP_OPT_INT, .offset = AT(model.layers), .def = "4", .min = 1,
     .max = 64, .symbol = "L", .help = "encoder layers"},
    {.key = "model.width", .type = CP_OPT_INT, .offset = AT(model.width), .def = "128", .min = 1,
     .max = 16384, .symbol = "d", .help = "hidden size"},
    {.key = "model.heads", .type = CP_OPT_INT, .offset = AT(model.heads), .def = "4", .min = 1,
     .max = 1024, .symbol = "n_h", .help = "attention heads; must divide the width"},
    {.key = "model.ffn", .type = CP_OPT_INT, .offset = AT(model.ffn), .def = "512", .min = 1,
     .max = 65536, .symbol = "d_f", .help = "feed-forward size"},
    {.key = "model.max_len", .type = CP_OPT_INT, .offset = AT(model.max_len), .def = "32",
     .min = 2, .max = 8192, .unit = "tokens", .symbol = "l", .help = "longest sequence"},
    {.key = "model.vocab", .type = CP_OPT_INT, .offset = AT(model.vocab), .def = "8000", .min = 16,
     .max = 1e6, .help = "pieces to learn when no vocabulary file is given"},

    {.key = "data.path", .type = CP_OPT_STRING, .offset = AT(data.path), .def = "data",
     .help = "training file (.tsv .csv .jsonl), or a folder with train.*, heldout.*, vocab.txt; "
             "from the config file's folder"},
    {.key = "data.heldout", .type = CP_OPT_STRING, .offset = AT(data.heldout),
     .help = "file to evaluate on; else heldout.* of the folder, else every tenth text by hash"},
    {.key = "data.vocab", .type = CP_OPT_STRING, .offset = AT(data.vocab),
     .help = "vocab.txt (WordPiece); else that of the folder, else one is trained"},
    {.key = "data.text_column", .type = CP_OPT_STRING, .offset = AT(data.text_column),
     .def = "text", .help = "column or field with the text"},
    {.key = "data.label_column", .type = CP_OPT_STRING, .offset = AT(data.label_column),
     .def = "label", .help = "column or field with the class"},
    {.key = "data.task", .type = CP_OPT_CHOICE, .offset = AT(data.task), .def = "classify",
     .choices = TASKS, .help = "what is learned"},
    {.key = "data.classes", .type = CP_OPT_INT, .offset = AT(data.classes), .def = "0", .min = 0,
     .max = 100000, .help = "number of classes expected; 0: as many as the data has"},
    {.key = "data.partition", .type = CP_OPT_CHOICE, .offset = AT(data.partition),
     .def = "dirichlet", .choices = PARTITIONS, .help = "how samples are spread over clusters"},
    {.key = "data.alpha", .type = CP_OPT_REAL, .offset = AT(data.alpha), .def = "0.5",
     .min = 1e-3, .max = 1e6, .help = "Dirichlet concentration: smaller is more unequal"},

    {.key = "train.micro_batch", .type = CP_OPT_INT, .offset = AT(train.micro_batch), .def = "8",
     .min = 1, .max = 65536, .unit = "samples", .symbol = "b", .help = "samples per micro-batch"},
    {.key = "train.micro_batches", .type = CP_OPT_INT, .offset = AT(train.micro_batches),
     .def = "8", .min = 1, .max = 1024, .symbol = "M_ref",
     .help = "micro-batches per step where the policy does not choose"},
    {.key = "train.micro_max", .type = CP_OPT_INT, .offset = AT(train.micro_max), .def = "16",
     .min = 1, .max = 1024, .symbol = "M_max", .help = "most micro-batches that a policy may choose"},
    {.key = "train.batch", .type = CP_OPT_INT, .offset = AT(train.batch), .def = "64", .min = 1,
     .max = 1e6, .unit = "samples", .help = "samples per step with plan.batch_mode fixed-batch"},
    {.key = "train.local_steps", .type = CP_OPT_INT, .offset = AT(train.local_steps), .def = "20",
     .min = 1, .max = 1e6, .symbol = "H", .help = "local steps of a round"},
    {.key = "train.lr", .type = CP_OPT_REAL, .offset = AT(train.lr), .def = "1e-3", .min = 0,
     .above_min = true, .max = 1e9, .symbol = "eta", .help = "learning rate after warm-up"},
    {.key = "train.warmup", .type = CP_OPT_REAL, .offset = AT(train.warmup), .def = "0.05",
     .min = 0, .max = 1, .help = "share of all steps with a linearly rising rate"},
    {.key = "train.decay", .type = CP_OPT_CHOICE, .offset = AT(train.decay), .def = "linear",
     .choices = DECAYS, .help = "learning rate after warm-up"},
    {.key = "train.optimizer", .type = CP_OPT_CHOICE, .offset = AT(train.optimizer),
     .def = "adamw", .choices = OPTIMIZERS, .help = "update rule"},
    {.key = "train.weight_decay", .type = CP_OPT_REAL, .offset = AT(train.weight_decay),
     .def = "0.01", .min = 0, .max = 1, .help = "decoupled; not on biases and LayerNorm"},
    {.key = "train.beta1", .type = CP_OPT_REAL, .offset = AT(train.beta1), .def = "0.9", .min = 0,
     .max = 1, .below_max = true, .help = "AdamW, first moment"},
    {.key = "train.beta2", .type = CP_OPT_REAL, .offset = AT(train.beta2), .def = "0.999",
     .min = 0, .max = 1, .below_max = true, .help = "AdamW, second moment"},
    {.key = "train.eps", .type = CP_OPT_REAL, .offset = AT(train.eps), .def = "1e-8", .min = 0,
     .max = 1, .help = "AdamW, added to the root"},
    {.key = "train.clip", .type = CP_OPT_REAL, .offset = AT(train.clip), .def = "1", .min = 0,
     .max = 1e9, .help = "largest global gradient norm; 0: no clipping"},
    {.key = "train.dropout", .type = CP_OPT_REAL, .offset = AT(train.dropout), .def = "0.1",
     .min = 0, .max = 1, .below_max = true, .help = "one rate for every dropout of the model"},
    {.key = "train.freeze", .type = CP_OPT_INT, .offset = AT(train.freeze), .def = "0", .min = 0,
     .max = 64,
     .help = "first encoder layers that keep their parameters, and the embedding with them; 0: none"},

    {.key = "eval.max_samples", .type = CP_OPT_INT, .offset = AT(eval.max_samples), .def = "2000",
     .min = 0, .max = 1e9,
     .help = "held-out samples per round (a fixed random choice); the last round takes all; 0: all"},

    {.key = "plan.policy", .type = CP_OPT_STRING, .offset = AT(plan.policy), .def = "dssda",
     .help = "who decides; see collapipe plan --help"},
    {.key = "plan.cuts", .type = CP_OPT_CUTS, .offset = AT(plan.cuts), .min = 0, .max = 64,
     .help = "policy static: layers on each device of each cluster, as [[2,1,1],[1,3]]"},
    {.key = "plan.v", .type = CP_OPT_REAL, .offset = AT(plan.v), .def = "10", .min = 1e-6,
     .max = 1e9, .symbol = "V'", .help = "weight of latency against the long-term constraints"},
    {.key = "plan.batch_mode", .type = CP_OPT_CHOICE, .offset = AT(plan.batch_mode),
     .def = "fixed-b", .choices = BATCH_MODES,
     .help = "fixed-b: a step has M x micro_batch samples; fixed-batch: train.batch"},
    {.key = "pipe.order", .type = CP_OPT_CHOICE, .offset = AT(pipe.order), .def = "auto",
     .choices = ORDERS, .help = "order of micro-batches; auto: the policy's choice"},

    {.key = "fed.rounds", .type = CP_OPT_INT, .offset = AT(fed.rounds), .def = "10", .min = 1,
     .max = 1e6, .symbol = "R", .help = "rounds of federated averaging"},
    {.key = "fed.aggregator", .type = CP_OPT_CHOICE, .offset = AT(fed.aggregator), .def = "fedavg",
     .choices = AGGREGATORS, .help = "how cluster models become one"},
    {.key = "fed.moments", .type = CP_OPT_CHOICE, .offset = AT(fed.moments), .def = "keep",
     .choices = MOMENTS, .help = "AdamW moments at the start of a round"},
    {.key = "fed.weights", .type = CP_OPT_CHOICE, .offset = AT(fed.weights), .def = "data",
     .choices = WEIGHTS, .help = "weight of a cluster: its data, or the samples it trained"},
    {.key = "fed.deadline_s", .type = CP_OPT_REAL, .offset = AT(fed.deadline_s), .def = "3600",
     .min = 1, .max = 1e9, .unit = "s", .help = "longest wait for a cluster's round"},

    {.key = "net.kind", .type = CP_OPT_CHOICE, .offset = AT(net.kind), .def = "inproc",
     .choices = NETS, .group_value = true, .help = "how nodes talk: threads of one process"},
    {.key = "net.wait_s", .type = CP_OPT_REAL, .offset = AT(net.wait_s), .def = "300", .min = 1e-3,
     .max = 1e9, .unit = "s", .help = "longest wait for one message within a step"},
    {.key = "node.threads", .type = CP_OPT_INT, .offset = AT(node.threads), .def = "1", .min = 1,
     .max = 1, .help = "kernel threads of a node"},

    {.key = "radio.kind", .type = CP_OPT_CHOICE, .offset = AT(radio.kind), .def = "rayleigh",
     .choices = RADIOS, .help = "fading of a round"},
    {.key = "radio.d2d_mhz", .type = CP_OPT_REAL, .offset = AT(radio.d2d_mhz), .def = "20",
     .min = 1e-3, .max = 1e5, .unit = "MHz", .symbol = "W_D", .help = "band inside a cluster"},
    {.key = "radio.up_mhz", .type = CP_OPT_REAL, .offset = AT(radio.up_mhz), .def = "40",
     .min = 1e-3, .max = 1e5, .unit = "MHz", .symbol = "W_U", .help = "uplink, shared by clusters"},
    {.key = "radio.down_mhz", .type = CP_OPT_REAL, .offset = AT(radio.down_mhz), .def = "40",
     .min = 1e-3, .max = 1e5, .unit = "MHz", .symbol = "W_L", .help = "downlink"},
    {.key = "radio.noise_dbm_hz", .type = CP_OPT_REAL, .offset = AT(radio.noise_dbm_hz),
     .def = "-174", .min = -250, .max = 0, .unit = "dBm/Hz", .symbol = "N_0",
     .help = "noise density"},
    {.key = "radio.d2d_dbm", .type = CP_OPT_REAL, .offset = AT(radio.d2d_dbm), .def = "20",
     .min = -60, .max = 60, .unit = "dBm", .help = "most power between nodes of a cluster"},
    {.key = "radio.d2e_dbm", .type = CP_OPT_REAL, .offset = AT(radio.d2e_dbm), .def = "23",
     .min = -60, .max = 60, .unit = "dBm", .help = "most power towards the base station"},
    {.key = "radio.bs_dbm", .type = CP_OPT_REAL, .offset = AT(radio.bs_dbm), .def = "30",
     .min = -60, .max = 80, .unit = "dBm", .symbol = "P_BS", .help = "power of the base station"},
    {.key = "radio.rician_k_db", .type = CP_OPT_REAL, .offset = AT(radio.rician_k_db), .def = "6",
     .min = -40, .max = 40, .unit = "dB", .symbol = "K_r", .help = "kind rician: factor"},
    {.key = "radio.clamp", .type = CP_OPT_REAL, .offset = AT(radio.clamp), .def = "0.1",
     .min = 1e-6, .max = 1, .symbol = "chi_min", .help = "smallest fading power"},
    {.key = "radio.shadow_db", .type = CP_OPT_REAL, .offset = AT(radio.shadow_db), .def = "0",
     .min = 0, .max = 30, .unit = "dB", .help = "standard deviation of shadowing"},
    {.key = "radio.availability", .type = CP_OPT_REAL, .offset = AT(radio.availability),
     .def = "1", .min = 0.01, .max = 1,
     .help = "each round a device has this share of its speed, or more up to all of it"},
    {.key = "server.gflops", .type = CP_OPT_REAL, .offset = AT(server.gflops), .def = "200",
     .min = 1e-3, .max = 1e9, .unit = "GFLOP/s", .symbol = "nu_srv",
     .help = "edge server in total; each cluster gets an equal part"},

    {.key = "clusters", .type = CP_OPT_LIST, .offset = AT(clusters), .item = CLUSTER_TABLE,
     .item_size = sizeof(struct cp_config_cluster), .item_max = 1024, .short_form = true,
     .short_offset = AT(clusters_short), .def = "2x3",
     .help = "clusters, or CxK: C clusters of K devices drawn with the seed"},
    {.key = "changes", .type = CP_OPT_LIST, .offset = AT(changes), .item = CHANGE_TABLE,
     .item_size = sizeof(struct cp_config_change), .item_max = 10000,
     .help = "devices that leave, come back or change speed"},
    {0},
};

cp_err cp_config_new(struct cp_conf **out)
{
    return cp_conf_new(CP_CONFIG_TABLE, sizeof(struct cp_config), out);
}

const struct cp_config *cp_config_of(const struct cp_conf *c)
{
    return cp_conf_values(c);
}
