"""What is decided about GPUs, on a machine that need not have any (docs/gpu.md)."""

from collections.abc import Callable, Iterator

import pytest

from ringside_core.keras import tf
from ringside_core.specs import RecordInProgress, Surroundings, backend_options
from tests.contract.cases import Case
from trainers.availability import availability
from trainers.process import started


@pytest.mark.parametrize(
    ("gpus", "replicas", "able"), [(0, 2, True), (1, 1, True), (1, 2, False), (2, 2, True)]
)
def test_an_arm_with_more_replicas_than_gpus_is_refused_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, gpus: int, replicas: int, able: bool
) -> None:
    """Without a GPU the replicas share CPUs."""
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["a GPU"] * gpus)
    options = backend_options("mirrored", {}).model_dump()
    arm = {"backend": "mirrored", "options": options, "replicas": replicas}

    (obstacle,) = availability({"arms": [arm], "workload": None})["obstacles"]

    assert able == (obstacle is None)
    assert able or f"GPUs: {gpus}, replicas: {replicas}" in obstacle


@pytest.fixture
def switch() -> Iterator[Callable[[bool], None]]:
    """TensorFlow's; other tests find it as it was."""
    settings = tf.config.experimental
    before, own = (
        settings.tensor_float_32_execution_enabled(),
        settings.enable_tensor_float_32_execution,
    )
    own(True)
    yield own
    settings.enable_tensor_float_32_execution = own
    own(before)


@pytest.mark.usefixtures("switch")
@pytest.mark.parametrize("verifies", [False, True])
def test_float32_is_verified_without_tensor_float_32(verifies: bool) -> None:
    """Whatever a program says. It is timed as the program says."""
    record = RecordInProgress.begun(Case("serial", 1).spec("digits"))

    with started(record, Surroundings(), lambda _: None, verifies=verifies):
        tf.config.experimental.enable_tensor_float_32_execution(True)

        assert tf.config.experimental.tensor_float_32_execution_enabled() != verifies
