#!/usr/bin/python3
"""Writes the golden fixtures of tests/unit/model/test_golden.c: BERT for classification from plain
PyTorch operations in float64, on parameters that are exact in float32.

plain.safetensors    first-step logits, loss and gradients without dropout; parameters after ten steps
                     of AdamW and of SGD (warm-up, decay, clipping by the global norm)
dropout.safetensors  logits, loss and gradients with the masks of src/math/dropout.c, computed here by
                     a second Philox

Run: /usr/bin/python3 tests/golden/make_golden.py   (PyTorch 1.13.1)
"""
import json
import math
import os
import struct

import numpy as np
import torch

torch.set_num_threads(1)
torch.manual_seed(20)
L, D, H, F, V, C, MAX_LEN, TYPES, EPS = 2, 16, 2, 32, 50, 3, 9, 2, 1e-12
STEPS, MICROS, B, T = 10, 2, 3, 7
RATE, SEED, STEP, PURPOSE = 0.1, 0x123456789ABCDEF0, 7, 4
LR, WARMUP, CLIP, DECAY = 2e-3, 3, 0.5, 0.1
SITE_EMB, SITE_PROBS, SITE_ATTN, SITE_FFN, SITE_POOLED = range(5)


def save(path, tensors):
    """A safetensors file: 8 bytes of header length, JSON header, data; large types first, so that all
    are aligned."""
    kinds = {"float32": "F32", "float64": "F64", "int32": "I32", "int64": "I64"}
    header, blobs, at = {}, [], 0
    for name, x in sorted(tensors.items(), key=lambda item: -item[1].dtype.itemsize):
        x = np.ascontiguousarray(x)
        header[name] = {"dtype": kinds[str(x.dtype)], "shape": list(x.shape),
                        "data_offsets": [at, at + x.nbytes]}
        blobs.append(x.tobytes())
        at += x.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def philox(counter, key):
    """Philox4x32-10 (Salmon et al., SC 2011)."""
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [(b >> 32) ^ c[1] ^ k[0], b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def mask(rate, sample, block, site, elements):
    """Dropout factors of the given elements of one sample."""
    key = (SEED & 0xFFFFFFFF, (SEED >> 32) ^ (PURPOSE << 24))
    limit = int(rate * 2**32)
    out = []
    for e in elements:
        c = (e // 4, STEP, sample & 0xFFFFFFFF, (sample >> 32) << 16 | block << 3 | site)
        out.append(0.0 if philox(c, key)[e % 4] < limit else 1 / (1 - rate))
    return torch.tensor(out, dtype=torch.float64)


def drop_rows(x, rate, samples, block, site):
    """x [b, ...]: the elements of each sample counted from 0."""
    if rate == 0:
        return x
    n = x[0].numel()
    return torch.stack([row * mask(rate, s, block, site, range(n)).view_as(row)
                        for row, s in zip(x, samples)])


def drop_probs(p, rate, samples, block):
    """p [b, H, t, t]: element (h * MAX_LEN + i) * MAX_LEN + j."""
    if rate == 0:
        return p
    t = p.shape[-1]
    at = [(h * MAX_LEN + i) * MAX_LEN + j for h in range(H) for i in range(t) for j in range(t)]
    return torch.stack([q * mask(rate, s, block, SITE_PROBS, at).view_as(q)
                        for q, s in zip(p, samples)])


def names():
    emb = "bert.embeddings."
    yield emb + "word_embeddings.weight", (V, D)
    yield emb + "position_embeddings.weight", (MAX_LEN, D)
    yield emb + "token_type_embeddings.weight", (TYPES, D)
    yield emb + "LayerNorm.weight", (D,)
    yield emb + "LayerNorm.bias", (D,)
    for i in range(L):
        enc = f"bert.encoder.layer.{i}."
        for part in ("query", "key", "value"):
            yield enc + f"attention.self.{part}.weight", (D, D)
            yield enc + f"attention.self.{part}.bias", (D,)
        yield enc + "attention.output.dense.weight", (D, D)
        yield enc + "attention.output.dense.bias", (D,)
        yield enc + "attention.output.LayerNorm.weight", (D,)
        yield enc + "attention.output.LayerNorm.bias", (D,)
        yield enc + "intermediate.dense.weight", (F, D)
        yield enc + "intermediate.dense.bias", (F,)
        yield enc + "output.dense.weight", (D, F)
        yield enc + "output.dense.bias", (D,)
        yield enc + "output.LayerNorm.weight", (D,)
        yield enc + "output.LayerNorm.bias", (D,)
    yield "bert.pooler.dense.weight", (D, D)
    yield "bert.pooler.dense.bias", (D,)
    yield "classifier.weight", (C, D)
    yield "classifier.bias", (C,)


def initial():
    params = {}
    for name, shape in names():
        x = torch.randn(shape, dtype=torch.float64) * (0.1 if len(shape) == 1 else 0.3)
        if name.endswith("LayerNorm.weight"):
            x = x + 1
        params[name] = x.float().double()
    return params


def norm(p, prefix, x):
    x = x - x.mean(-1, keepdim=True)
    x = x / torch.sqrt((x * x).mean(-1, keepdim=True) + EPS)
    return x * p[prefix + ".weight"] + p[prefix + ".bias"]


def linear(p, prefix, x):
    return x @ p[prefix + ".weight"].T + p[prefix + ".bias"]


def logits_of(p, ids, lens, samples, rate):
    b, t = ids.shape
    emb = "bert.embeddings."
    x = p[emb + "word_embeddings.weight"][ids] + p[emb + "position_embeddings.weight"][:t]
    x = norm(p, emb + "LayerNorm", x + p[emb + "token_type_embeddings.weight"][0])
    x = drop_rows(x, rate, samples, 0, SITE_EMB)
    padding = torch.arange(t)[None, :] >= lens[:, None]
    for i in range(L):
        enc = f"bert.encoder.layer.{i}."
        q, k, v = (linear(p, enc + "attention.self." + part, x).view(b, t, H, D // H).transpose(1, 2)
                   for part in ("query", "key", "value"))
        scores = q @ k.transpose(-1, -2) / math.sqrt(D // H)
        scores = scores.masked_fill(padding[:, None, None, :], -math.inf)
        probs = drop_probs(torch.softmax(scores, -1), rate, samples, i + 1)
        ctx = (probs @ v).transpose(1, 2).reshape(b, t, D)
        y = drop_rows(linear(p, enc + "attention.output.dense", ctx), rate, samples, i + 1, SITE_ATTN)
        x = norm(p, enc + "attention.output.LayerNorm", x + y)
        y = linear(p, enc + "intermediate.dense", x)
        y = 0.5 * y * (1 + torch.erf(y / math.sqrt(2)))
        y = drop_rows(linear(p, enc + "output.dense", y), rate, samples, i + 1, SITE_FFN)
        x = norm(p, enc + "output.LayerNorm", x + y)
    pooled = torch.tanh(linear(p, "bert.pooler.dense", x[:, 0]))
    pooled = drop_rows(pooled, rate, samples, L + 1, SITE_POOLED)
    return linear(p, "classifier", pooled)


def batches():
    rng = np.random.default_rng(5)
    ids = rng.integers(0, V, (STEPS, MICROS, B, T)).astype(np.int32)
    lens = rng.integers(2, T + 1, (STEPS, MICROS, B)).astype(np.int32)
    lens[0] = [[7, 2, 4], [5, 7, 1]]
    label = rng.integers(0, C, (STEPS, MICROS, B)).astype(np.int32)
    label[:, 1, 1] = -100
    sample = rng.permutation(1000)[: STEPS * MICROS * B].reshape(STEPS, MICROS, B).astype(np.int64)
    sample[0, 1, 2] = 5_000_000_007  # above 32 bits
    return ids, lens, label, sample


def step_loss(p, data, step, rate):
    """All logits of the step, the loss divided by its labelled samples, and the undivided loss."""
    ids, lens, label, sample = (a[step] for a in data)
    logits = torch.stack([logits_of(p, torch.tensor(ids[m]).long(), torch.tensor(lens[m]),
                                    [int(s) for s in sample[m]], rate) for m in range(MICROS)])
    y = torch.tensor(label).long().view(-1)
    total = torch.nn.functional.cross_entropy(logits.view(-1, C), y, ignore_index=-100,
                                              reduction="sum")
    return logits, total / int((y != -100).sum()), total


def f32(x):
    return x.detach().numpy().astype(np.float32)


def first_step(init, data, rate, out):
    p = {n: x.clone().requires_grad_() for n, x in init.items()}
    logits, loss, total = step_loss(p, data, 0, rate)
    loss.backward()
    out["logits"] = f32(logits)
    out["loss"] = np.array([total.item()])
    for n, x in p.items():
        out["grad/" + n] = f32(x.grad)


def train(init, data, kind, out):
    p = {n: x.clone().requires_grad_() for n, x in init.items()}
    bare = [x for n, x in p.items() if n.endswith("bias") or "LayerNorm" in n]
    heavy = [x for n, x in p.items() if not (n.endswith("bias") or "LayerNorm" in n)]
    groups = [{"params": heavy, "weight_decay": DECAY}, {"params": bare, "weight_decay": 0.0}]
    if kind == "adamw":
        opt = torch.optim.AdamW(groups, lr=LR, betas=(0.9, 0.999), eps=1e-8)
    else:
        opt = torch.optim.SGD(groups, lr=50 * LR)
    base = [g["lr"] for g in opt.param_groups]
    norms = []
    for step in range(STEPS):
        k = step / WARMUP if step < WARMUP else (STEPS - step) / (STEPS - WARMUP)
        for g, lr in zip(opt.param_groups, base):
            g["lr"] = lr * k
        opt.zero_grad()
        step_loss(p, data, step, 0)[1].backward()
        norms.append(torch.nn.utils.clip_grad_norm_(list(p.values()), CLIP).item())
        opt.step()
    print(kind, "norms", [round(n, 3) for n in norms])
    out[kind + "_norm"] = np.array(norms)
    for n, x in p.items():
        out[kind + "/" + n] = f32(x)


def main():
    folder = os.path.dirname(os.path.abspath(__file__))
    init, data = initial(), batches()
    plain = dict(zip(("ids", "len", "label", "sample"), data))
    for n, x in init.items():
        plain["init/" + n] = f32(x)
    first_step(init, data, 0, plain)
    train(init, data, "adamw", plain)
    train(init, data, "sgd", plain)
    save(os.path.join(folder, "plain.safetensors"), plain)
    dropped = {}
    first_step(init, data, RATE, dropped)
    save(os.path.join(folder, "dropout.safetensors"), dropped)


main()
