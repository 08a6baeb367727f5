"""Words: a vocabulary that is learned from the data, an embedding, and weights of classes.

python examples/text.py
ringside verify examples/text.py
"""

import numpy as np

import ringside
from ringside import tf

drawn = np.random.default_rng(0)
WORDS = np.array(["good", "great", "fine", "bad", "poor", "dull", "film", "plot", "cast", "scene"])
GOOD = np.array([1, 1, 1, -1, -1, -1, 0, 0, 0, 0])
chosen = drawn.integers(len(WORDS), size=(900, 6))
texts = np.array([" ".join(words) for words in WORDS[chosen]])
labels = (GOOD[chosen].sum(axis=1) > 0).astype(np.float32)

layers = tf.keras.layers
vectorized = layers.TextVectorization(max_tokens=20, output_sequence_length=6)
vectorized.adapt(texts)

with ringside.scope():
    model = tf.keras.Sequential(
        [
            layers.Embedding(20, 8, input_length=6),
            layers.Conv1D(8, 2, activation="relu"),
            layers.GlobalMaxPooling1D(),
            layers.Dropout(0.2),
            layers.Dense(1, activation="sigmoid"),
        ]
    )
    model.compile("adam", "binary_crossentropy", weighted_metrics=["accuracy"])

ringside.fit(
    model,
    vectorized(texts).numpy(),
    labels,
    batch_size=30,
    epochs=5,
    validation_split=0.2,
    class_weight={0: 1.0, 1: 2.0},
)
