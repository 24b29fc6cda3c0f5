#!/usr/bin/python3
"""What no Transformer is needed for: TF-IDF of single words, then logistic regression.

Reads train.tsv and heldout.tsv (header `text<TAB>label`) of DATA_DIR and prints the held-out
accuracy beside that of always answering the most frequent class. Needs numpy, scikit-learn >= 1.2.
"""

import argparse
import csv
import json
import os

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression


def read_tsv(path):
    with open(path, encoding="utf-8", newline="") as f:
        rows = list(csv.DictReader(f, delimiter="\t"))
    return [r["text"] for r in rows], np.array([r["label"] for r in rows])


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("data_dir", metavar="DATA_DIR")
    p.add_argument("--c", type=float, default=10.0, help="inverse regularisation strength")
    p.add_argument("--ngram", type=int, default=1, help="longest word n-gram to count")
    p.add_argument("--json", action="store_true")
    a = p.parse_args()

    texts, labels = read_tsv(os.path.join(a.data_dir, "train.tsv"))
    heldout_texts, heldout_labels = read_tsv(os.path.join(a.data_dir, "heldout.tsv"))
    bag = TfidfVectorizer(ngram_range=(1, a.ngram), sublinear_tf=True)
    model = LogisticRegression(C=a.c, max_iter=1000).fit(bag.fit_transform(texts), labels)
    accuracy = model.score(bag.transform(heldout_texts), heldout_labels)
    names, counts = np.unique(labels, return_counts=True)
    majority = float((heldout_labels == names[counts.argmax()]).mean())

    if a.json:
        print(json.dumps({"accuracy": accuracy, "majority": majority, "train": len(labels),
                          "heldout": len(heldout_labels), "features": len(bag.vocabulary_)}))
    else:
        print(f"bag of words, logistic regression: {100 * accuracy:.2f} % of {len(heldout_labels)} "
              f"held-out rows (majority class {100 * majority:.2f} %, {len(labels)} training rows, "
              f"{len(bag.vocabulary_)} features)")


if __name__ == "__main__":
    main()
