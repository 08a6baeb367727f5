"""Draws that belong to the example, against splitmix64 in plain Python."""

import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtri

from ringside.verify.example_random import tie_to_examples
from ringside_core.keras import tf
from ringside_core.specs import RefusalError
from tests.independent import splitmix64

layers = tf.keras.layers
IDS = [5, 0, 1436, -1, 7]
STEP = 3
GAMMA = 0x9E3779B97F4A7C15


def expected_bits(
    ids: list[int], elements: int, *, step: int = STEP, layer: int = 0, draw: int = 0
) -> np.ndarray:
    """What a layer draws, [example, element] as whole numbers below 2**64."""
    at_step = splitmix64(splitmix64(layer * 2**32 + draw) + step)
    keys = [splitmix64(at_step + number) for number in ids]
    rows = [[splitmix64(key + element * GAMMA) for element in range(elements)] for key in keys]
    return np.array(rows, dtype=object)


def tied(layer: Any, ids: list[int], *shape: int, step: int = STEP) -> Any:
    """A model of one layer, tied to these examples."""
    model = tf.keras.Sequential([layers.Input(shape), layer])
    fixed = tf.constant(ids, tf.int64)
    tie_to_examples(model, lambda: fixed, lambda: tf.constant(step))
    return model


def drawn(layer: Any, ids: list[int], *shape: int, step: int = STEP) -> np.ndarray:
    """What one call of a layer makes of ones."""
    tf.keras.utils.set_random_seed(1)  # weights are drawn when the model is built
    model = tied(layer, ids, *shape, step=step)
    return np.asarray(model(tf.ones([len(ids), *shape], model.compute_dtype), training=True))


@pytest.fixture(autouse=True)
def float64() -> None:
    """The precision that certificates are made in."""
    tf.keras.backend.set_floatx("float64")


def test_a_mask_is_splitmix_of_id_step_and_element() -> None:
    """Kept where the first 53 bits reach the rate, and divided by what is kept."""
    mask = drawn(layers.Dropout(0.3), IDS, 4, 2)

    uniform = (expected_bits(IDS, 8) >> 11).astype(float) / 2**53
    by_hand = np.where(uniform >= 0.3, 1 / 0.7, 0.0).reshape(5, 4, 2)
    np.testing.assert_allclose(mask, by_hand, rtol=1e-14)


def test_normal_draws_are_the_inverse_distribution_function() -> None:
    """GaussianNoise adds them, at its own standard deviation."""
    noise = drawn(layers.GaussianNoise(0.3), IDS, 6) - 1

    uniform = ((expected_bits(IDS, 6) >> 12).astype(float) + 0.5) / 2**52
    np.testing.assert_allclose(noise, 0.3 * ndtri(uniform), rtol=1e-9, atol=1e-12)


def test_each_layer_and_each_draw_has_a_stream_of_its_own() -> None:
    """The second layer is number 1; a layer called twice on a batch draws 0 and 1."""
    first, second = layers.Dropout(0.5), layers.Dropout(0.5)
    model = tf.keras.Sequential([layers.Input((40,)), first, second])
    ids = tf.constant(IDS, tf.int64)
    tie_to_examples(model, lambda: ids, lambda: tf.constant(STEP))

    batch = tf.ones([5, 40], tf.float64)
    twice = [first(batch, training=True).numpy() for _ in range(2)]
    other = second(batch, training=True).numpy()

    for mask, layer, draw in ((twice[0], 0, 0), (twice[1], 0, 1), (other, 1, 0)):
        kept = expected_bits(IDS, 40, layer=layer, draw=draw) >= 2**63
        np.testing.assert_array_equal(mask > 0, kept)


def test_the_mean_of_many_masks_is_the_share_kept() -> None:
    """Of 160,000 units within five standard errors; of each example and each step as well."""
    masks = np.stack([drawn(layers.Dropout(0.2), list(range(40)), 200, step=s) for s in range(20)])

    kept = masks > 0
    for axes, count in ((None, 160_000), ((0, 2), 4000), ((1, 2), 8000)):
        bound = 5 * math.sqrt(0.2 * 0.8 / count)
        assert np.max(np.abs(np.mean(kept, axis=axes) - 0.8)) < bound


def test_steps_and_neighbouring_examples_are_not_alike() -> None:
    """Correlation of masks is that of chance, within five standard errors."""
    masks = np.stack([drawn(layers.Dropout(0.5), [0, 1, 2], 4000, step=s) for s in (0, 1)])

    rows = np.corrcoef(masks.reshape(6, 4000))
    assert np.max(np.abs(rows - np.eye(6))) < 5 / math.sqrt(4000)


MAKERS: list[tuple[Callable[[], Any], tuple[int, ...]]] = [
    (lambda: layers.Dropout(0.5), (6,)),
    (lambda: layers.Dropout(0.5, noise_shape=(None, 1, 3)), (4, 3)),
    (lambda: layers.SpatialDropout1D(0.5), (4, 3)),
    (lambda: layers.GaussianDropout(0.5), (6,)),
    (lambda: layers.AlphaDropout(0.5), (6,)),
    (lambda: layers.LSTM(3, dropout=0.5), (4, 3)),
    (lambda: layers.GRU(3, recurrent_dropout=0.5), (4, 3)),
]


@pytest.mark.parametrize(("make", "shape"), MAKERS)
def test_an_example_is_treated_alike_wherever_it_is_fed(
    make: Callable[[], Any], shape: tuple[int, ...]
) -> None:
    """In another place of a batch of another size; at another step otherwise."""
    whole = drawn(make(), IDS, *shape)
    turned = drawn(make(), IDS[::-1], *shape)
    part = drawn(make(), IDS[1:3], *shape)
    later = drawn(make(), IDS, *shape, step=STEP + 1)

    np.testing.assert_allclose(turned[::-1], whole, rtol=1e-12)
    np.testing.assert_allclose(part, whole[1:3], rtol=1e-12)
    assert not np.allclose(later, whole)
    assert not np.allclose(whole[0], whole[1])


def test_a_graph_draws_what_eager_code_draws() -> None:
    """Traced once, for batches of any size, with ids and step that are fed."""
    model = tf.keras.Sequential([layers.Input((30,)), layers.Dropout(0.5)])
    now: dict[str, Any] = {}
    tie_to_examples(model, lambda: now["ids"], lambda: now["step"])

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64), tf.TensorSpec([], tf.int64)])
    def masks(ids: Any, step: Any) -> Any:
        now.update(ids=ids, step=step)
        return model(tf.ones([tf.shape(ids)[0], 30], tf.float64), training=True)

    for ids, step in ((IDS, 0), (IDS[2:], 9)):
        kept = expected_bits(ids, 30, step=step) >= 2**63
        mask = masks(tf.constant(ids, tf.int64), tf.constant(step, tf.int64))
        np.testing.assert_array_equal(mask.numpy() > 0, kept)


def test_masks_are_the_same_in_every_precision() -> None:
    """A rate that float32 would round decides nothing."""
    wide = drawn(layers.Dropout(0.3), IDS, 50)
    tf.keras.backend.set_floatx("float32")
    narrow = drawn(layers.Dropout(0.3), IDS, 50)

    assert narrow.dtype == np.float32
    np.testing.assert_array_equal(narrow > 0, wide > 0)


@pytest.mark.parametrize(("dtype", "low", "high"), [("float64", -1.1, 2.3), ("float32", 0.0, 1.0)])
def test_uniform_draws_stay_below_their_upper_bound(dtype: str, low: float, high: float) -> None:
    """Also in float32, where 53 bits would be rounded up to it."""
    layer = layers.Dropout(0.5, name="drop")
    tied(layer, IDS, 4)
    generator = layer._random_generator

    values = generator.random_uniform([5, 100], low, high, dtype=dtype).numpy()

    digits = 53 if dtype == "float64" else 24
    unit = (expected_bits(IDS, 100) >> (64 - digits)).astype(float) / 2**digits
    assert values.dtype == dtype
    np.testing.assert_allclose(values, low + (high - low) * unit, rtol=1e-15, atol=1e-15)
    assert (low <= values).all()
    assert (values < high).all()


def test_a_truncated_normal_ends_at_two_standard_deviations() -> None:
    """Its variance is that of the closed form, 0.7737, within five standard errors."""
    layer = layers.Dropout(0.5)
    tied(layer, list(range(100)), 4)

    values = layer._random_generator.truncated_normal([100, 400], mean=1.0, stddev=3.0).numpy()

    unit = (values - 1.0) / 3.0
    density, inside = math.exp(-2.0) / math.sqrt(2 * math.pi), math.erf(math.sqrt(2.0))
    variance = 1 - 4 * density / inside
    assert np.abs(unit).max() < 2
    assert abs(np.mean(unit)) < 5 * math.sqrt(variance / unit.size)
    assert abs(np.var(unit) - variance) < 5 * math.sqrt(2.0) * variance / math.sqrt(unit.size)


@pytest.mark.parametrize(
    "draw",
    [
        lambda generator: generator.make_legacy_seed(),
        lambda generator: generator.make_seed_for_stateless_op(),
        lambda generator: generator.random_normal([1, 4]),
    ],
)
def test_what_belongs_to_no_example_is_refused(draw: Callable[[Any], Any]) -> None:
    """The refusal names the layer."""
    layer = layers.Dropout(0.5, name="drop")
    tied(layer, IDS, 4)

    with pytest.raises(RefusalError, match=r"layer drop \(Dropout\) draws"):
        draw(layer._random_generator)


def test_one_number_for_the_whole_batch_is_that_of_the_step() -> None:
    """Whichever examples there are; the second draw is another one."""
    for ids in (IDS, [9]):
        layer = layers.Dropout(0.5)
        tied(layer, ids, 4)
        found = [float(layer._random_generator.random_uniform([], dtype="float64")) for _ in "ab"]
        at_step = [splitmix64(splitmix64(draw) + STEP) for draw in (0, 1)]
        assert found == [(splitmix64(number) >> 11) / 2**53 for number in at_step]


def test_of_several_batches_in_one_call_each_is_the_examples_own() -> None:
    """The rows of the second batch are further elements of the same examples."""
    layer = layers.Dropout(0.5)
    tied(layer, IDS, 4)

    found = layer._random_generator.random_uniform([3 * len(IDS), 4], dtype="float64")

    unit = (expected_bits(IDS, 12) >> 11).astype(float) / 2**53
    of_batches = [unit[:, 4 * batch : 4 * batch + 4] for batch in range(3)]
    np.testing.assert_array_equal(found, np.concatenate(of_batches))


def test_whole_numbers_are_below_their_bound() -> None:
    """One for each example."""
    layer = layers.Dropout(0.5)
    tied(layer, IDS, 4)

    found = layer._random_generator.random_uniform([5], 2, 9, dtype="int32")

    unit = (expected_bits(IDS, 1)[:, 0] >> 11).astype(float) / 2**53
    np.testing.assert_array_equal(found, 2 + np.floor(7 * unit))


def test_a_crop_is_at_the_same_place_in_each_part_of_a_batch() -> None:
    """Keras draws one for the whole batch."""
    images = np.arange(4 * 6 * 7, dtype=float).reshape(4, 6, 7, 1)

    def cropped(ids: list[int], step: int = STEP) -> np.ndarray:
        model = tied(layers.RandomCrop(3, 2), ids, 6, 7, 1, step=step)
        return np.asarray(model(images[ids], training=True))

    whole = cropped([0, 1, 2, 3])
    np.testing.assert_array_equal(np.concatenate([cropped([0, 1]), cropped([2, 3])]), whole)
    corners = {float(cropped([0], step)[0, 0, 0, 0]) for step in range(40)}
    assert len(corners) > 12  # of 4 · 6 places, or one fewer where Keras leaves the last out
    for step in range(5):
        corner = cropped([0], step)
        top, left = divmod(int(corner[0, 0, 0, 0]), 7)
        np.testing.assert_array_equal(corner, images[:1, top : top + 3, left : left + 2])


def test_a_layer_that_is_connected_anew_draws_as_before() -> None:
    """A Sequential without an input shape is, when it sees another size of batch."""
    model = tf.keras.Sequential([layers.Dropout(0.5)])
    model(tf.ones([len(IDS), 6], tf.float64))
    now: list[Any] = []
    tie_to_examples(model, lambda: now[-1], lambda: tf.constant(STEP))

    def drawn_for(ids: list[int]) -> np.ndarray:
        now.append(tf.constant(ids, tf.int64))
        return np.asarray(model(tf.ones([len(ids), 6], tf.float64), training=True))

    whole = drawn_for(IDS)

    np.testing.assert_array_equal(drawn_for(IDS[:2]), whole[:2])
    top = expected_bits(IDS, 6) >> 11
    np.testing.assert_array_equal(whole != 0, top.astype(np.float64) * 2.0**-53 >= 0.5)


def test_flips_belong_to_the_example() -> None:
    """An image is flipped alike alone, in a batch and in another order; half of them are."""
    ids = list(range(200))
    images = np.random.default_rng(1).normal(size=(200, 4, 4, 1))
    flip = layers.RandomFlip("horizontal")
    whole = np.asarray(tied(flip, ids, 4, 4, 1)(images, training=True))
    turned = np.asarray(tied(flip, ids[::-1], 4, 4, 1)(images[::-1], training=True))[::-1]
    later = np.asarray(tied(flip, ids, 4, 4, 1, step=STEP + 1)(images, training=True))

    np.testing.assert_array_equal(whole, turned)
    kept = [np.array_equal(one, other) for one, other in zip(whole, images, strict=True)]
    # A standard deviation of the share of 200 coin tosses is 0.035.
    assert abs(np.mean(kept) - 0.5) < 0.12
    assert np.any(later != whole)


REPLICAS = """
import json, sys, threading
from ringside_core.keras import tf
from ringside.verify.example_random import tie_to_examples

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
here = threading.local()
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Input((30,)), tf.keras.layers.Dropout(0.5)])
    step = tf.Variable(3, dtype=tf.int64)
tie_to_examples(model, lambda: here.ids, lambda: step)

def on_replica():
    first = 4 * tf.distribute.get_replica_context().replica_id_in_sync_group
    masks = []
    for start in (0, 2):  # as gradient accumulation slices a batch
        here.ids = tf.cast(first + start + tf.range(2), tf.int64)
        masks.append(model(tf.ones([2, 30]), training=True))
        tf.distribute.get_replica_context().merge_call(lambda strategy: None)  # to the other thread
    return tf.concat(masks, 0)

masks = tf.function(lambda: strategy.run(on_replica))()
values = [one.numpy().tolist() for one in strategy.experimental_local_results(masks)]
json.dump(values, open(sys.argv[1], "w"))
"""


def test_two_replicas_drop_what_one_would(tmp_path: Path) -> None:
    """Each draws for its own ids, in its own thread, slice by slice."""
    answer = tmp_path / "masks.json"

    # A process of its own: the devices of this one are set already.
    done = subprocess.run(
        [sys.executable, "-c", REPLICAS, str(answer)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    masks = np.concatenate(json.loads(answer.read_text()))
    np.testing.assert_array_equal(masks > 0, expected_bits(list(range(8)), 30) >= 2**63)
