#!/usr/bin/python3
"""A checkpoint of `collapipe run`, read and evaluated by PyTorch alone.

    peer_eval.py CHECKPOINT DATA_DIR

An independent reader of the Hugging Face layout: model.safetensors by the rules of its format, BERT's
names, config.json. Accuracy and loss on heldout.tsv must be those that `collapipe eval` gives.
"""

import argparse
import json
import os
import struct

import peer_fedavg as peer  # sets the number of threads before torch is loaded
import torch

PARTS = {"out": "attention.output.dense", "norm1": "attention.output.LayerNorm",
         "up": "intermediate.dense", "down": "output.dense", "norm2": "output.LayerNorm"}
OUTSIDE = {"word": "bert.embeddings.word_embeddings",
           "position": "bert.embeddings.position_embeddings",
           "token_type": "bert.embeddings.token_type_embeddings",
           "norm": "bert.embeddings.LayerNorm", "pooler": "bert.pooler.dense",
           "classifier": "classifier"}


def read_safetensors(path):
    """Name -> float tensor."""
    with open(path, "rb") as f:
        (length,) = struct.unpack("<Q", f.read(8))
        header, data = json.loads(f.read(length)), f.read()
    header.pop("__metadata__", None)
    return {name: torch.frombuffer(bytearray(data[slice(*t["data_offsets"])]),
                                   dtype=torch.float32).reshape(t["shape"])
            for name, t in header.items()}


def parameter(tensors, name):
    """A parameter of peer.Bert; its query, key and value are one matrix."""
    if not name.startswith("layers."):
        module, kind = name.rsplit(".", 1)
        return tensors[f"{OUTSIDE[module]}.{kind}"]
    _, layer, module, kind = name.split(".")
    prefix = f"bert.encoder.layer.{layer}"
    if module == "qkv":
        return torch.cat([tensors[f"{prefix}.attention.self.{x}.{kind}"]
                          for x in ("query", "key", "value")])
    return tensors[f"{prefix}.{PARTS[module]}.{kind}"]


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("checkpoint", metavar="CHECKPOINT")
    p.add_argument("data_dir", metavar="DATA_DIR")
    a = p.parse_args()
    with open(os.path.join(a.checkpoint, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    shape = argparse.Namespace(
        layers=config["num_hidden_layers"], width=config["hidden_size"],
        heads=config["num_attention_heads"], ffn=config["intermediate_size"],
        max_len=config["max_position_embeddings"], dropout=0.0, init_std=0.02)
    classes = [config["id2label"][str(i)] for i in range(len(config["id2label"]))]
    words = peer.WordPiece(os.path.join(a.checkpoint, "vocab.txt"))
    rows = peer.Rows(os.path.join(a.data_dir, "heldout.tsv"), words, classes, shape.max_len)
    model = peer.Bert(shape, len(words), len(classes))
    tensors = read_safetensors(os.path.join(a.checkpoint, "model.safetensors"))
    model.load_state_dict({name: parameter(tensors, name) for name in model.state_dict()})
    accuracy, loss = peer.evaluate(model, rows, 0)
    print(f"accuracy {accuracy:.6f}, loss {loss:.6f} on {len(rows)} texts")


if __name__ == "__main__":
    main()
