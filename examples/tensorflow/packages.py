#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Text: in which section of Debian is a package, by the words of its name and description (apt-cache dumpavail)."""
import argparse
import subprocess

import keras
import numpy as np

import poseidon.keras as poseidon

WORDS, LONGEST, SECTIONS = 20000, 24, 12


def packages():
    """(description, section) of every package that this machine knows of."""
    known = subprocess.run(["apt-cache", "dumpavail"], check=True, capture_output=True, text=True, errors="replace").stdout
    for entry in known.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in entry.split("\n") if ": " in line and line[0] != " ")
        text = f"{fields.get('Package', '')} {fields.get('Description', fields.get('Tag', ''))}".replace("-", " ")
        yield text, fields.get("Section", "misc").split("/")[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--samples", type=int, help="of the packages; all where it is not given")
    options = parser.parse_args()
    keras.utils.set_random_seed(1)
    texts, sections = zip(*packages())
    names, counts = np.unique(sections, return_counts=True)
    kept = list(names[np.argsort(-counts)][:SECTIONS])
    pairs = [(text, kept.index(section)) for text, section in zip(texts, sections) if section in kept]
    order = np.random.default_rng(1).permutation(len(pairs))[:options.samples]
    texts, labels = np.array([pairs[at][0] for at in order]), np.array([pairs[at][1] for at in order])
    words = keras.layers.TextVectorization(WORDS, output_sequence_length=LONGEST)
    words.adapt(texts)
    numbers = np.asarray(words(texts))

    model = keras.Sequential([keras.layers.Input((LONGEST,), dtype="int32"), keras.layers.Embedding(WORDS, 32),
                              keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(64, activation="relu"),
                              keras.layers.Dense(SECTIONS)])
    model.compile(optimizer=keras.optimizers.Adam(2e-3), metrics=["accuracy"],
                  loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    poseidon.distribute(model)
    history = model.fit(numbers, labels, validation_split=0.1, epochs=options.epochs, batch_size=256 // poseidon.workers(),
                        verbose=2 if poseidon.rank() == 0 else 0)
    if poseidon.rank() == 0:
        print(f"of {len(labels)} packages; right about {history.history['val_accuracy'][-1]:.1%} of those it has not seen")


if __name__ == "__main__":
    main()
