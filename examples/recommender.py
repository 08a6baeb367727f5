"""Users and films to a rating and a click: several inputs and outputs, embeddings, callbacks.

python examples/recommender.py
ringside launch examples/recommender.py --backend multi_worker_mirrored --replicas 2
"""

import tempfile
from pathlib import Path

import numpy as np

import ringside
from ringside import tf

NUM_USERS, NUM_FILMS, SIZE = 60, 40, 8
drawn = np.random.default_rng(0)
user, film = drawn.integers(NUM_USERS, size=3000), drawn.integers(NUM_FILMS, size=3000)
minutes = drawn.uniform(60, 200, size=3000).astype(np.float32)
tastes, kinds = drawn.normal(size=(NUM_USERS, 2)), drawn.normal(size=(NUM_FILMS, 2))
match = (tastes[user] * kinds[film]).sum(axis=1) - (minutes - 120) / 80
rating = np.clip(3 + match, 1, 5).astype(np.float32)
clicked = (match + drawn.normal(size=3000) > 0).astype(np.float32)

layers = tf.keras.layers
with ringside.scope():
    inputs = {
        "user": tf.keras.Input((), dtype="int32", name="user"),
        "film": tf.keras.Input((), dtype="int32", name="film"),
        "minutes": tf.keras.Input((1,), name="minutes"),
    }
    l2 = tf.keras.regularizers.l2(1e-5)
    user_vector = layers.Embedding(NUM_USERS, SIZE, embeddings_regularizer=l2)(inputs["user"])
    film_vector = layers.Embedding(NUM_FILMS, SIZE, embeddings_regularizer=l2)(inputs["film"])
    normalized = layers.Normalization(mean=120.0, variance=1600.0)(inputs["minutes"])
    x = layers.Concatenate()([user_vector * film_vector, user_vector, film_vector, normalized])
    x = layers.Dense(16, activation="relu")(x)
    outputs = {
        "rating": layers.Dense(1, name="rating")(x),
        "clicked": layers.Dense(1, activation="sigmoid", name="clicked")(x),
    }
    model = tf.keras.Model(inputs, outputs)
    model.compile(
        optimizer=tf.keras.optimizers.Adagrad(0.1, clipnorm=1.0),
        loss={"rating": "mse", "clicked": "binary_crossentropy"},
        loss_weights={"rating": 1.0, "clicked": 0.5},
        metrics={"rating": "mae", "clicked": [tf.keras.metrics.AUC(name="auc")]},
    )

with tempfile.TemporaryDirectory() as folder:
    best = Path(folder) / "best.weights.h5"
    history = ringside.fit(
        model,
        {"user": user, "film": film, "minutes": minutes},
        {"rating": rating, "clicked": clicked},
        batch_size=60,
        epochs=12,
        validation_split=0.2,
        callbacks=[
            tf.keras.callbacks.EarlyStopping(monitor="val_rating_mae", patience=3, mode="min"),
            tf.keras.callbacks.ReduceLROnPlateau(factor=0.5, patience=2),
            tf.keras.callbacks.ModelCheckpoint(best, save_best_only=True, save_weights_only=True),
        ],
    )
    model.load_weights(best)
