"""The backend tpu against the published API, by a stand-in: no TPU was ever at hand."""

import inspect
from types import SimpleNamespace
from typing import Any
from urllib.error import URLError

import pytest

from backends import make_backend
from backends.tf_distribute.tpu import TPU
from ringside_core.keras import tf
from ringside_core.specs import RefusalError, RunSpec, Surroundings
from ringside_core.specs.options import TPUOptions
from tests.unit.stats.factory import spec_of

RESOLVER = "distribute.cluster_resolver.TPUClusterResolver"
PUBLISHED = {  # as the documentation of 2.21 names them, with what the backend hands over
    RESOLVER: "tpu",
    "config.experimental_connect_to_cluster": "cluster_spec_or_resolver",
    "tpu.experimental.initialize_tpu_system": "cluster_resolver",
    "distribute.TPUStrategy": "tpu_cluster_resolver",
}


def within(name: str) -> tuple[Any, str]:
    """The module and the last word of a name of TensorFlow's."""
    *path, last = name.split(".")
    found = tf
    for part in path:
        found = getattr(found, part)
    return found, last


def spec(replicas: int) -> RunSpec:
    """A run on a TPU that is called `slice`."""
    return spec_of("tpu", replicas, options={"tpu": "slice"}, save="record")


@pytest.fixture(name="calls")
def calls_(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """What is called, with its one argument; the strategy is that of the CPU, one replica."""
    made: list[tuple[str, Any]] = []
    for name, parameter in PUBLISHED.items():
        module, last = within(name)
        published = inspect.signature(getattr(module, last))

        def stand_in(
            *args: Any,
            name: str = name,
            published: Any = published,
            takes: str = parameter,
            **kw: Any,
        ) -> Any:
            (given,) = (bound := published.bind(*args, **kw)).arguments.values()
            assert [*bound.arguments] == [takes]
            made.append((name, given))
            return tf.distribute.OneDeviceStrategy("CPU:0") if "Strategy" in name else name

        monkeypatch.setattr(module, last, stand_in)
    return made


def test_it_connects_and_initializes_before_its_strategy(calls: list[tuple[str, Any]]) -> None:
    """In the order of TensorFlow's guide, each with the arguments that its signature has."""
    with make_backend(spec(1), Surroundings()) as backend, backend.scope():
        variable = tf.Variable(1.0)
        assert backend.num_replicas == 1 and float(variable) == 1.0

    assert [name for name, _ in calls] == list(PUBLISHED)
    assert calls[0][1] == "slice"
    assert {given for _, given in calls[1:]} == {RESOLVER}  # what the stand-in gave


def test_the_name_comes_from_the_environment_too(
    calls: list[tuple[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`local`, the chips of this VM, is a name that TensorFlow only takes as an argument."""
    monkeypatch.setenv("TPU_NAME", "local")
    with make_backend(spec(1).replace(options=TPUOptions()), Surroundings()):
        pass
    assert calls[0][1] == "local"


@pytest.mark.usefixtures("calls")
def test_a_slice_of_another_size_is_refused() -> None:
    """It names the size that it has."""
    with (
        pytest.raises(RefusalError, match="Use --replicas 1"),
        make_backend(spec(8), Surroundings()),
    ):
        pass


@pytest.mark.parametrize(
    "error", [URLError("Name or service not known"), ValueError("no TPU"), RuntimeError("no TPU")]
)
def test_without_a_tpu_the_arm_cannot_run(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A metadata server that cannot be reached ends no other arm."""

    def fails(tpu: str) -> Any:
        if isinstance(error, URLError):
            raise error
        return SimpleNamespace(cluster_spec=asked)

    def asked() -> None:
        raise error

    monkeypatch.setattr(tf.distribute.cluster_resolver, "TPUClusterResolver", fails)
    obstacle = TPU.obstacle(TPUOptions(tpu="slice"))

    assert obstacle and "needs a TPU" in obstacle and "set TPU_NAME" in obstacle
