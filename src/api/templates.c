#include "api/templates.h"

#include <stddef.h>

/* The model and the two clusters are the same in both templates that train. */
#define MODEL                                                                                      \
    "model:\n"                                                                                     \
    "  kind: bert\n"                                                                               \
    "  layers: 4          # encoder layers: these are what devices share out\n"                    \
    "  width: 128\n"                                                                               \
    "  heads: 4\n"                                                                                 \
    "  ffn: 512\n"                                                                                 \
    "  max_len: 32        # tokens; longer texts are cut, and counted at the start\n"              \
    "  init_std: 0.05     # of the initial weights: BERT's 0.02 is for a width of 768\n"           \
    "\n"

#define CLUSTERS                                                                                   \
    "# Two clusters of unequal devices. Figures are those of the radio and energy model; the "     \
    "memory\n"                                                                                     \
    "# limits are hard, and small on purpose: no device here could train the model alone.\n"       \
    "clusters:\n"                                                                                  \
    "  - name: home\n"                                                                             \
    "    distance_m: 80                   # control unit to the base station of the edge server\n" \
    "    cu: {gflops: 10, energy_pj_per_flop: 20}\n"                                               \
    "    devices:\n"                                                                               \
    "      - {name: phone,  gflops: 4,  mem_mib: 16, energy_pj_per_flop: 20, budget_j: 30, x_m: "  \
    "4,  y_m: 3}\n"                                                                                \
    "      - {name: tablet, gflops: 6,  mem_mib: 24, energy_pj_per_flop: 22, budget_j: 45, x_m: "  \
    "-6, y_m: 2}\n"                                                                                \
    "      - {name: laptop, gflops: 16, mem_mib: 28, energy_pj_per_flop: 35, x_m: 2,  y_m: -8}\n"  \
    "  - name: lab\n"                                                                              \
    "    distance_m: 150\n"                                                                        \
    "    cu: {gflops: 12, energy_pj_per_flop: 20}\n"                                               \
    "    devices:\n"                                                                               \
    "      - {name: board,   gflops: 3,  mem_mib: 16, energy_pj_per_flop: 18, budget_j: 25, x_m: " \
    "12, y_m: 9}\n"                                                                                \
    "      - {name: mini,    gflops: 10, mem_mib: 28, energy_pj_per_flop: 28, x_m: -9, y_m: "      \
    "-12}\n"                                                                                       \
    "      - {name: desktop, gflops: 20, mem_mib: 28, energy_pj_per_flop: 40, x_m: 15, y_m: -3}\n" \
    "\n"                                                                                           \
    "radio:\n"                                                                                     \
    "  kind: rayleigh     # a new channel in every round\n"                                        \
    "  availability: 0.9  # a device has 90 to 100 % of its speed\n"                               \
    "server:\n"                                                                                    \
    "  gflops: 100\n"

static const char CLASSIFY[] =
    "# CollaPipe: a BERT classifier, trained by two clusters of unequal devices.\n"
    "# Run it with:  collapipe run .        Every option: collapipe run --help\n"
    "\n"
    "seed: 1\n"
    "run:\n"
    "  name: classify\n"
    "\n" MODEL "data:\n"
    "  path: data         # train.tsv, heldout.tsv and vocab.txt: noun glosses of WordNet, 8 "
    "classes\n"
    "  partition: dirichlet\n"
    "  alpha: 1           # how unequal the clusters' classes are; larger is more equal\n"
    "\n"
    "train:\n"
    "  micro_batch: 8     # b: samples per micro-batch\n"
    "  micro_batches: 4   # M_ref: micro-batches per step that the policy keeps on average\n"
    "  local_steps: 80    # H: steps between two averages\n"
    "  optimizer: adamw\n"
    "  lr: 1e-3\n"
    "  warmup: 0.05\n"
    "  decay: linear\n"
    "  dropout: 0\n"
    "fed:\n"
    "  rounds: 10\n"
    "\n"
    "plan:\n"
    "  policy: dssda      # who decides; collapipe plan --explain shows the others\n"
    "  v: 10              # larger: faster rounds, energy budgets met later\n"
    "\n"
    "# The tablet leaves and comes back; the desktop slows down to a quarter.\n"
    "changes:\n"
    "  - {round: 3, node: home.tablet, kind: leave}\n"
    "  - {round: 5, node: home.tablet, kind: join}\n"
    "  - {round: 7, node: lab.desktop, kind: rate, factor: 0.25}\n"
    "\n" CLUSTERS;

static const char CLASSIFY_FULL[] =
    "# CollaPipe: a BERT classifier, trained by two clusters of unequal devices; the longer "
    "preset.\n"
    "# Run it with:  collapipe run .        Every option: collapipe run --help\n"
    "\n"
    "seed: 1\n"
    "run:\n"
    "  name: classify-full\n"
    "\n" MODEL "data:\n"
    "  path: data         # train.tsv, heldout.tsv and vocab.txt: noun glosses of WordNet, 8 "
    "classes\n"
    "  partition: dirichlet\n"
    "  alpha: 1           # how unequal the clusters' classes are; larger is more equal\n"
    "\n"
    "train:\n"
    "  micro_batch: 8     # b: samples per micro-batch\n"
    "  micro_batches: 4   # M_ref: micro-batches per step that the policy keeps on average\n"
    "  local_steps: 100   # H: steps between two averages\n"
    "  optimizer: adamw\n"
    "  lr: 1e-3\n"
    "  warmup: 0.05\n"
    "  decay: linear\n"
    "  dropout: 0.1\n"
    "fed:\n"
    "  rounds: 20\n"
    "\n"
    "plan:\n"
    "  policy: dssda      # who decides; collapipe plan --explain shows the others\n"
    "  v: 10              # larger: faster rounds, energy budgets met later\n"
    "\n" CLUSTERS;

static const char SIMULATE[] =
    "# CollaPipe: plans and simulated rounds of BERT-base on sixteen drawn devices. No data is "
    "needed.\n"
    "# One decision:  collapipe plan .       Every option: collapipe plan --help\n"
    "\n"
    "seed: 1              # draws the devices, their places and each round's channels\n"
    "run:\n"
    "  name: simulate\n"
    "\n"
    "# BERT-base, with BERT's own vocabulary.\n"
    "model: {kind: bert, layers: 12, width: 768, heads: 12, ffn: 3072, max_len: 128, vocab: "
    "30522}\n"
    "\n"
    "train:\n"
    "  micro_batch: 4     # b: samples per micro-batch\n"
    "  micro_batches: 8   # M_ref: micro-batches per step that the policy keeps on average\n"
    "  micro_max: 16      # M_max: the most that it may choose\n"
    "  local_steps: 20    # H: steps between two averages\n"
    "  optimizer: adamw   # two words of state per weight: they count as memory\n"
    "fed:\n"
    "  rounds: 500\n"
    "\n"
    "plan:\n"
    "  policy: dssda\n"
    "  formats: any       # dssda-x may send bf16 and int8, too\n"
    "  v: 10              # larger: faster rounds, energy budgets met later\n"
    "\n"
    "# 4 clusters of 4 devices: 20 to 120 GFLOP/s, 15 to 40 pJ/FLOP, 1 to 4 GiB, 280 to 520 J a "
    "round,\n"
    "# within 40 x 40 m of a control unit of 60 GFLOP/s that is 50 to 200 m from the base "
    "station.\n"
    "clusters: 4x4\n"
    "\n"
    "radio:\n"
    "  kind: rayleigh     # a new channel in every round; or static, rician, trace\n"
    "  d2d_mhz: 20        # inside each cluster\n"
    "  up_mhz: 40         # shared by the clusters\n"
    "  down_mhz: 40\n"
    "  clamp: 0.1         # the deepest fade: a tenth of the mean power\n"
    "  shadow_db: 0       # log-normal shadowing, 8 is usual\n"
    "  availability: 0.5  # each round a device has 50 to 100 % of its speed\n"
    "server:\n"
    "  gflops: 2000       # in total; each cluster gets an equal part\n";

const struct cp_template CP_TEMPLATES[] = {
    {"classify", "BERT classifier on noun glosses, 8 classes: some minutes", true, CP_WORDNET_8,
     CLASSIFY},
    {"classify-full", "the same task with a longer training", true, CP_WORDNET_8, CLASSIFY_FULL},
    {.name = "simulate",
     .help = "a world of 16 drawn devices and BERT-base, to plan and simulate: no data",
     .config = SIMULATE},
    {0},
};
