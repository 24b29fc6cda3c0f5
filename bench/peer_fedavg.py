#!/usr/bin/python3
"""The peer of `collapipe run` on classification: the same federated training, in plain PyTorch.

Clusters hold unequal shards of one training set. In every round each cluster starts from the global
weights, makes H AdamW steps on its own shard, and the server averages the results weighted by shard
size (FedAvg, arXiv 1602.05629). By docs/theory.md section 2 a pipeline inside a cluster does not
change this mathematics, so both programs must reach the same accuracy on the same split.

Model, initialisation and optimiser follow BERT (arXiv 1810.04805): post-LayerNorm encoder,
erf-GELU, tanh pooler on [CLS], weights normal(0, std) cut off at two std, no weight decay on biases
and LayerNorm. The gradient of a step is the mean over its batch, whatever the micro-batch size.

DATA_DIR holds train.tsv and heldout.tsv (header `text<TAB>label`) and vocab.txt (WordPiece,
uncased). Needs Python 3, torch >= 1.13 and numpy. One thread unless OMP_NUM_THREADS says otherwise.
"""

import argparse
import csv
import json
import os
import sys
import time
import unicodedata

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is loaded

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

WORD_CHARS_MAX = 100  # a longer word becomes one [UNK], as in BERT
EVAL_BATCH = 256


# Text


def is_punctuation(ch):
    """Every ASCII symbol counts as punctuation in BERT, also those that Unicode calls symbols."""
    ascii_symbol = ch.isascii() and ch.isprintable() and not ch.isalnum() and ch != " "
    return ascii_symbol or unicodedata.category(ch).startswith("P")


def is_cjk(ch):
    c = ord(ch)
    return (0x4E00 <= c <= 0x9FFF or 0x3400 <= c <= 0x4DBF or 0xF900 <= c <= 0xFAFF
            or 0x20000 <= c <= 0x2CEAF or 0x2F800 <= c <= 0x2FA1F)


def basic_words(text):
    """BERT's basic tokeniser, uncased: clean, lower, strip accents, cut at punctuation, CJK."""
    spaced = []
    for ch in text:
        if ch.isspace():
            spaced.append(" ")
        elif ch == "\ufffd" or unicodedata.category(ch) in ("Cc", "Cf", "Cs", "Co"):
            continue
        elif is_cjk(ch):
            spaced.append(f" {ch} ")
        else:
            spaced.append(ch)
    lowered = unicodedata.normalize("NFD", "".join(spaced).lower())
    stripped = (ch for ch in lowered if unicodedata.category(ch) != "Mn")
    return "".join(f" {ch} " if is_punctuation(ch) else ch for ch in stripped).split()


class WordPiece:
    """Greedy longest match from the left; pieces inside a word are marked with ##."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as f:
            self.ids = {piece.rstrip("\n"): i for i, piece in enumerate(f)}
        missing = [s for s in ("[PAD]", "[UNK]", "[CLS]", "[SEP]") if s not in self.ids]
        if missing:
            sys.exit(f"{path}: no {' '.join(missing)}: this is not a BERT vocabulary")
        self.pad, self.unk = self.ids["[PAD]"], self.ids["[UNK]"]
        self.cls, self.sep = self.ids["[CLS]"], self.ids["[SEP]"]
        self.known = {}  # word -> its ids: glosses repeat their words

    def __len__(self):
        return len(self.ids)

    def split_word(self, word):
        if len(word) > WORD_CHARS_MAX:
            return [self.unk]
        pieces, start = [], 0
        while start < len(word):
            mark = "##" if start else ""
            for end in range(len(word), start, -1):
                piece = self.ids.get(mark + word[start:end])
                if piece is not None:
                    break
            else:
                return [self.unk]  # one unknown part makes the whole word unknown
            pieces.append(piece)
            start = end
        return pieces

    def encode(self, text, max_len):
        ids = [self.cls]
        for word in basic_words(text):
            if word not in self.known:
                self.known[word] = self.split_word(word)
            ids += self.known[word]
        return ids[:max_len - 1] + [self.sep]


class Rows:
    """Encoded examples: ids [N, max_len] padded at the end, length [N], label [N]."""

    def __init__(self, path, words, classes, max_len):
        texts, labels = read_tsv(path)
        unknown = sorted(set(labels) - set(classes))
        if unknown:
            sys.exit(f"{path}: label {unknown[0]!r} does not occur in train.tsv")
        encoded = [words.encode(text, max_len) for text in texts]
        self.length = torch.tensor([len(e) for e in encoded])
        self.ids = torch.full((len(encoded), max_len), words.pad)
        for row, e in enumerate(encoded):
            self.ids[row, :len(e)] = torch.tensor(e)
        self.label = torch.tensor([classes.index(label) for label in labels])

    def __len__(self):
        return len(self.label)

    def micro_batches(self, rows, size):
        """Cuts rows into micro-batches of similar length: less padding, the same gradient."""
        rows = rows[torch.argsort(self.length[rows], stable=True)]
        for part in rows.split(size):
            longest = int(self.length[part].max())
            yield self.ids[part, :longest], self.length[part], self.label[part]


def read_tsv(path):
    """Columns text and label; a field with quotes in it is quoted, as in CSV (RFC 4180)."""
    with open(path, encoding="utf-8", newline="") as f:
        rows = list(csv.reader(f, delimiter="\t"))
    if not rows or rows[0] != ["text", "label"]:
        sys.exit(f"{path}:1: the header must be text<TAB>label")
    for number, row in enumerate(rows[1:], 1):
        if len(row) != 2:
            sys.exit(f"{path}: row {number} has {len(row)} fields")
    return [r[0] for r in rows[1:]], [r[1] for r in rows[1:]]


# Model


class Encoder(nn.Module):
    """One Transformer encoder layer, post-LayerNorm."""

    def __init__(self, a):
        super().__init__()
        self.heads, self.drop = a.heads, a.dropout
        self.qkv = nn.Linear(a.width, 3 * a.width)
        self.out = nn.Linear(a.width, a.width)
        self.norm1 = nn.LayerNorm(a.width, eps=1e-12)
        self.up = nn.Linear(a.width, a.ffn)
        self.down = nn.Linear(a.ffn, a.width)
        self.norm2 = nn.LayerNorm(a.width, eps=1e-12)

    def forward(self, x, bias):
        """x [b, t, D]; bias [b, 1, 1, t] is -inf on padding."""
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / (d // self.heads) ** 0.5 + bias
        probs = F.dropout(scores.softmax(-1), self.drop, self.training)  # [b, heads, t, t]
        context = (probs @ v).transpose(1, 2).reshape(b, t, d)
        x = self.norm1(x + F.dropout(self.out(context), self.drop, self.training))
        y = self.down(F.gelu(self.up(x)))
        return self.norm2(x + F.dropout(y, self.drop, self.training))


class Bert(nn.Module):
    """Embedding, encoder layers, tanh pooler on [CLS], classifier."""

    def __init__(self, a, vocab, classes):
        super().__init__()
        self.drop = a.dropout
        self.word = nn.Embedding(vocab, a.width)
        self.position = nn.Embedding(a.max_len, a.width)
        self.token_type = nn.Embedding(2, a.width)
        self.norm = nn.LayerNorm(a.width, eps=1e-12)
        self.layers = nn.ModuleList(Encoder(a) for _ in range(a.layers))
        self.pooler = nn.Linear(a.width, a.width)
        self.classifier = nn.Linear(a.width, classes)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.trunc_normal_(module.weight, std=a.init_std, a=-2 * a.init_std,
                                      b=2 * a.init_std)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def forward(self, ids, length):
        """ids [b, t], length [b]; returns logits [b, classes]. Token type 0 throughout."""
        t = ids.shape[1]
        padding = torch.arange(t) >= length[:, None]
        bias = torch.zeros(padding.shape).masked_fill(padding, -torch.inf)[:, None, None, :]
        x = self.norm(self.word(ids) + self.position.weight[:t] + self.token_type.weight[0])
        x = F.dropout(x, self.drop, self.training)
        for layer in self.layers:
            x = layer(x, bias)
        pooled = torch.tanh(self.pooler(x[:, 0]))
        return self.classifier(F.dropout(pooled, self.drop, self.training))


@torch.no_grad()
def evaluate(model, data, limit):
    """Accuracy and mean loss on the first `limit` rows (0: all)."""
    model.eval()
    rows = torch.arange(min(limit, len(data)) if limit else len(data))
    correct, loss = 0, 0.0
    for ids, length, label in data.micro_batches(rows, EVAL_BATCH):
        logits = model(ids, length)
        correct += int((logits.argmax(1) == label).sum())
        loss += float(F.cross_entropy(logits, label, reduction="sum"))
    return correct / len(rows), loss / len(rows)


# Federation


def dirichlet_shards(label, clusters, alpha, rng):
    """Each class is dealt to the clusters in shares drawn from Dirichlet(alpha)."""
    shards = [[] for _ in range(clusters)]
    for c in np.unique(label):
        rows = rng.permutation(np.flatnonzero(label == c))
        shares = rng.dirichlet([alpha] * clusters)
        cuts = np.rint(np.cumsum(shares)[:-1] * len(rows)).astype(int)
        for shard, part in zip(shards, np.split(rows, cuts)):
            shard.extend(part)
    return [np.sort(np.array(s, dtype=np.int64)) for s in shards]


def read_shards(path, clusters, rows):
    """A header, then lines `cluster<TAB>row`, both from 0; a row of train.tsv is in one shard."""
    table = np.loadtxt(path, dtype=np.int64, delimiter="\t", ndmin=2, skiprows=1)
    if table.shape[1] != 2 or (table < 0).any() or (table >= [clusters, rows]).any():
        sys.exit(f"{path}: wants lines cluster<TAB>row, cluster < {clusters}, row < {rows}")
    if len(np.unique(table[:, 1])) != len(table):
        sys.exit(f"{path}: a row is listed twice")
    return [np.sort(table[table[:, 0] == c, 1]) for c in range(clusters)]


def read_batches(path):
    """Samples per step of every round and cluster, as a run of collapipe logged them."""
    with open(path, encoding="utf-8") as f:
        rounds = [json.loads(line) for line in f]
    return [[c["step_samples"] for c in r["clusters"]] for r in rounds]


def learning_rate(a, step):
    """Linear warm-up from 0, then linear decay to 0 at the end; step counts from 0."""
    total = a.rounds * a.local_steps
    if step < a.warmup:
        return a.lr * step / a.warmup
    if a.decay == "none":
        return a.lr
    return a.lr * (total - step) / (total - a.warmup)


class Cluster:
    """One client: its shard, its copy of the model, its optimiser moments."""

    def __init__(self, a, model, data, shard, seed):
        self.a, self.model, self.data, self.shard = a, model, data, shard
        self.rng = np.random.default_rng(seed)
        self.queue = np.empty(0, dtype=np.int64)
        plain = [p for p in model.parameters() if p.dim() == 1]
        decayed = [p for p in model.parameters() if p.dim() > 1]
        self.optim = torch.optim.AdamW([{"params": decayed, "weight_decay": a.weight_decay},
                                        {"params": plain, "weight_decay": 0.0}], foreach=True)

    def next_batch(self, size):
        """Without replacement: every row once per epoch; the last batch of an epoch is smaller."""
        if len(self.queue) == 0:
            self.queue = self.rng.permutation(self.shard)
        batch, self.queue = np.split(self.queue, [min(size, len(self.queue))])
        return torch.from_numpy(batch)

    def local_round(self, weights, first_step, size):
        """H steps of `size` samples from the global weights; returns the mean training loss."""
        self.model.load_state_dict(weights)
        self.model.train()
        if self.a.moments == "reset":
            self.optim.state.clear()
        loss_sum, samples = 0.0, 0
        for step in range(first_step, first_step + self.a.local_steps):
            for group in self.optim.param_groups:
                group["lr"] = learning_rate(self.a, step)
            self.optim.zero_grad(set_to_none=True)
            batch = self.next_batch(size)
            for ids, length, label in self.data.micro_batches(batch, self.a.micro):
                loss = F.cross_entropy(self.model(ids, length), label, reduction="sum")
                (loss / len(batch)).backward()
                loss_sum += float(loss)
            samples += len(batch)
            if self.a.clip > 0:
                nn.utils.clip_grad_norm_(self.model.parameters(), self.a.clip)
            self.optim.step()
        return loss_sum / samples


def average(clusters):
    """FedAvg: every tensor weighted by shard size."""
    total = sum(len(c.shard) for c in clusters)
    states = [(len(c.shard) / total, c.model.state_dict()) for c in clusters]
    return {name: sum(share * state[name] for share, state in states) for name in states[0][1]}


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("data_dir", metavar="DATA_DIR")
    p.add_argument("--clusters", type=int, default=2)
    p.add_argument("--alpha", type=float, default=1.0, help="Dirichlet concentration of the split")
    p.add_argument("--shards", help="file of cluster<TAB>row to use instead of a Dirichlet split")
    p.add_argument("--run", metavar="RUN_DIR", help="a finished run of collapipe: its shards, and its "
                   "samples per step in every round and cluster (a policy may choose them)")
    p.add_argument("--rounds", type=int, default=10)
    p.add_argument("--local-steps", type=int, default=35, help="optimiser steps per round")
    p.add_argument("--batch", type=int, default=64, help="samples per step and cluster")
    p.add_argument("--micro", type=int, default=32, help="samples per backward; speed only")
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--warmup", type=int, default=35, help="steps")
    p.add_argument("--decay", choices=("linear", "none"), default="linear")
    p.add_argument("--clip", type=float, default=1.0, help="global gradient norm; 0: never")
    p.add_argument("--weight-decay", type=float, default=0.01)
    p.add_argument("--dropout", type=float, default=0.0)
    p.add_argument("--moments", choices=("keep", "reset"), default="keep")
    p.add_argument("--layers", type=int, default=4)
    p.add_argument("--width", type=int, default=128)
    p.add_argument("--heads", type=int, default=4)
    p.add_argument("--ffn", type=int, default=512)
    p.add_argument("--max-len", type=int, default=32)
    p.add_argument("--init-std", type=float, default=0.02)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--eval-max", type=int, default=0, help="held-out rows to use, in the last round all; 0: all")
    p.add_argument("--json", action="store_true", help="one JSON object per line")
    a = p.parse_args()
    if a.width % a.heads or a.max_len < 2 or min(a.clusters, a.rounds, a.local_steps, a.batch) < 1:
        p.error("heads must divide width, max-len be at least 2, all counts at least 1")
    if not 0 <= a.warmup < a.rounds * a.local_steps:
        p.error("warmup must be shorter than rounds x local-steps")
    return a


def main():
    a = arguments()
    torch.manual_seed(a.seed)
    words = WordPiece(os.path.join(a.data_dir, "vocab.txt"))
    train_path = os.path.join(a.data_dir, "train.tsv")
    classes = sorted(set(read_tsv(train_path)[1]))
    train = Rows(train_path, words, classes, a.max_len)
    heldout = Rows(os.path.join(a.data_dir, "heldout.tsv"), words, classes, a.max_len)

    label = train.label.numpy()
    sizes = [[a.batch] * a.clusters] * a.rounds
    if a.run:
        a.shards = os.path.join(a.run, "shards.tsv")
        sizes = read_batches(os.path.join(a.run, "metrics.jsonl"))
        if len(sizes) != a.rounds or len(sizes[0]) != a.clusters:
            sys.exit(f"{a.run} has {len(sizes)} rounds of {len(sizes[0])} clusters")
    shards = (read_shards(a.shards, a.clusters, len(train)) if a.shards else
              dirichlet_shards(label, a.clusters, a.alpha, np.random.default_rng(a.seed)))
    if min(map(len, shards)) == 0:
        sys.exit("a cluster has no rows: use another --seed, a larger --alpha or other --shards")

    server = Bert(a, len(words), len(classes))
    clusters = [Cluster(a, Bert(a, len(words), len(classes)), train, shard, [a.seed, c])
                for c, shard in enumerate(shards)]
    start = {"event": "start", "args": vars(a), "vocab": len(words), "classes": classes,
             "train": len(train), "heldout": len(heldout),
             "parameters": sum(p.numel() for p in server.parameters()),
             "shards": [np.bincount(label[s], minlength=len(classes)).tolist() for s in shards]}
    if a.json:
        print(json.dumps(start), flush=True)
    else:
        print(f"{start['parameters']} parameters, vocabulary {len(words)}, {len(train)} training "
              f"and {len(heldout)} held-out rows")
        for c, counts in enumerate(start["shards"]):
            print(f"cluster {c}: {sum(counts)} rows: "
                  + ", ".join(f"{n} {name}" for n, name in zip(counts, classes)))
        print("round  samples  train loss  held-out loss  accuracy  train time", flush=True)

    train_s = 0.0
    for r in range(a.rounds):
        t0 = time.monotonic()
        weights = server.state_dict()
        losses = [c.local_round(weights, r * a.local_steps, n) for c, n in zip(clusters, sizes[r])]
        server.load_state_dict(average(clusters))
        train_s += time.monotonic() - t0
        last = r == a.rounds - 1
        accuracy, loss = evaluate(server, heldout, 0 if last else a.eval_max)
        samples = a.local_steps * sum(map(sum, sizes[:r + 1]))
        if a.json:
            print(json.dumps({"event": "round", "round": r + 1, "samples": samples,
                              "train_loss": losses, "loss": loss, "accuracy": accuracy,
                              "train_s": train_s}), flush=True)
        else:
            print(f"{r + 1:5}  {samples:7}  {np.mean(losses):10.4f}  {loss:13.4f}  "
                  f"{100 * accuracy:6.2f} %  {train_s:8.1f} s", flush=True)


if __name__ == "__main__":
    main()
