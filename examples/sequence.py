"""Sentences from a generator, padded and masked, to a small Transformer, after keras.io.

python examples/sequence.py
mpirun -np 2 python examples/sequence.py
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

import ringside
from ringside import tf

LONGEST, WORDS, SIZE = 12, 30, 16
layers = tf.keras.layers


def sentences(seed: int, count: int) -> Iterator[tuple[list[int], int]]:
    """Numbers of words, and whether word 1 or 2 is among them."""
    drawn = np.random.default_rng(seed)
    for _ in range(count):
        words = drawn.integers(1, WORDS, size=drawn.integers(4, LONGEST + 1))
        yield words.tolist(), int(words.min() < 3)


def data(seed: int, count: int) -> tf.data.Dataset:
    """Batches of padded sentences."""
    dataset = tf.data.Dataset.from_generator(
        lambda: sentences(seed, count),
        output_signature=(
            tf.TensorSpec(shape=(None,), dtype=tf.int32),
            tf.TensorSpec(shape=(), dtype=tf.int32),
        ),
    )
    return dataset.padded_batch(32, padded_shapes=([LONGEST], [])).prefetch(tf.data.AUTOTUNE)


class TokenAndPositionEmbedding(tf.keras.layers.Layer):
    """A vector for each word and its place; word 0 is padding."""

    def __init__(self) -> None:
        super().__init__()
        self.token_emb = layers.Embedding(WORDS, SIZE, mask_zero=True)
        self.pos_emb = layers.Embedding(LONGEST, SIZE)

    def call(self, x: Any) -> Any:
        """Words [batch, LONGEST] → vectors [batch, LONGEST, SIZE]."""
        return self.token_emb(x) + self.pos_emb(tf.range(tf.shape(x)[-1]))

    def compute_mask(self, x: Any, mask: Any = None) -> Any:
        """Which are words."""
        return self.token_emb.compute_mask(x)


with ringside.scope():
    inputs = layers.Input((LONGEST,))
    x = TokenAndPositionEmbedding()(inputs)
    attended = layers.MultiHeadAttention(num_heads=2, key_dim=SIZE)(x, x)
    x = layers.LayerNormalization(epsilon=1e-6)(x + layers.Dropout(0.1)(attended))
    x = layers.GlobalAveragePooling1D()(x)
    x = layers.Dense(16, activation="relu")(x)
    model = tf.keras.Model(inputs, layers.Dense(1, activation="sigmoid")(x))
    model.compile(
        optimizer=tf.keras.optimizers.Adam(1e-2), loss="binary_crossentropy", metrics=["accuracy"]
    )

ringside.fit(model, data(0, 1000), epochs=4, validation_data=data(1, 200))
