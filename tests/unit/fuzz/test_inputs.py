"""What people and other programs write: hostfiles, variables, workload files, stores, traces."""

import contextlib
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringside.certificates.trace import Trace
from ringside.collectives.store import find_communication, keep
from ringside_core.archives import read_arrays
from ringside_core.specs import RefusalError, parse_hostfile, read_surroundings
from ringside_core.workloads.registry import keras_of
from tests.unit.fuzz.damage import VALUES, damaged_bytes, damaged_json, damaged_text, seeded
from tests.unit.report.collectives import communication
from tests.unit.specs.test_places import HOROVODRUN
from tests.unit.specs.test_slurm import task
from tests.unit.verify.made_up import trace

pytestmark = pytest.mark.nightly
ROOT = Path(__file__).resolve().parents[3]
HOSTS = "# of the lab\n10.77.0.1 slots=2\nnode-b.example slots=1\n\nlocalhost\n"
TF_CONFIG = {
    "cluster": {"chief": ["a:1"], "worker": ["b:2", "c:3"], "ps": ["d:4"]},
    "task": {"type": "worker", "index": 1},
}
PROGRAM = "import keras\nfrom ringside import Workload\n\ndef workload():\n    return Workload()\n"


def encoded(text: str) -> bytes:
    """As an editor would save it."""
    return text.encode(errors="surrogatepass")


TEXTS = st.text(max_size=30) | st.from_regex(r"[a-z./: '\"\\-]{0,20}", fullmatch=True)


@seeded
@given(text=damaged_text(HOSTS) | TEXTS)
def test_hostfiles(text: str) -> None:
    """A host that is read has a name that no shell and no ssh takes for anything else."""
    try:
        hosts = parse_hostfile(text)
    except RefusalError:
        return

    assert all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", host.name) for host in hosts)
    assert len({host.name.lower() for host in hosts}) == len(hosts)
    assert parse_hostfile("\n".join(f"{h.name} slots={h.slots}" for h in hosts)) == hosts


@seeded
@given(text=damaged_json(TF_CONFIG) | VALUES.map(json.dumps) | st.just("[" * 100_000) | TEXTS)
def test_tf_configs(text: str) -> None:
    """A place that is read is one of the cluster's, and is written as the same."""
    try:
        found = read_surroundings({"TF_CONFIG": text})
    except RefusalError:
        return

    if found.task is not None:
        assert found.task in found.task.cluster.tasks()
        assert read_surroundings({"TF_CONFIG": found.task.to_tf_config()}) == found
        assert 0 <= found.local_rank < found.local_size


@seeded
@given(data=st.data())
def test_variables_of_launchers(data: st.DataObject) -> None:
    """Some are missing or say something else: a rank below the size, or a refusal."""
    whole = data.draw(st.sampled_from([task(1), HOROVODRUN, task(1) | HOROVODRUN]))
    words = TEXTS | st.integers(-2, 5).map(str) | st.just("999999999(x999999999)")
    changes = data.draw(st.dictionaries(st.sampled_from(sorted(whole)), st.none() | words))
    env = {name: text for name, text in (whole | changes).items() if text is not None}

    try:
        found = read_surroundings(env, lambda nodes: ("a", "b", "c"))
    except RefusalError:
        return

    assert 0 <= found.rank < found.size
    assert 0 <= found.local_rank < found.local_size <= found.size


@seeded
@given(content=damaged_bytes(PROGRAM.encode()) | damaged_text(PROGRAM).map(encoded))
def test_files_of_workloads(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Which Keras a file asks for is read from its text, whatever that is."""
    file = tmp_path_factory.getbasetemp() / "fuzzed.py"
    file.write_bytes(content)

    with contextlib.suppress(RefusalError):
        assert keras_of(f"{file}:workload") in (2, 3)


@seeded
@given(data=st.data())
def test_stores_of_allreduce(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A damaged measurement is none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp()))
        whole = communication(np.random.default_rng(0))
        file = keep(whole)
        file.write_text(data.draw(damaged_json(json.loads(whole.to_json()))), errors="replace")

        assert find_communication() is None  # of another machine, if not damaged


def archive(**arrays: Any) -> bytes:
    """An .npz of these arrays."""
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


@seeded
@given(data=st.data())
def test_traces(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Damaged bytes, and whole archives of something else."""
    file = tmp_path_factory.getbasetemp() / "trace.npz"
    trace().write(file)
    arrays = read_arrays(file)
    name = data.draw(st.sampled_from([*sorted(arrays), "nothing|x"]))
    other = np.array(data.draw(VALUES.map(json.dumps)))
    exchanged = st.sampled_from([archive(**{**arrays, name: other}), archive(**{name: other})])
    file.write_bytes(data.draw(damaged_bytes(file.read_bytes()) | exchanged))

    with contextlib.suppress(RefusalError):
        assert isinstance(Trace.read(file).meta, dict)


class Touch:
    """Unpickled, it makes a file."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __reduce__(self) -> Any:
        return Path.touch, (self._file,)


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    """An archive of objects is refused, and they are not made."""
    made, file = tmp_path / "made", tmp_path / "trace.npz"
    file.write_bytes(archive(meta=np.array([Touch(made)], dtype=object)))

    with pytest.raises(RefusalError, match=r"trace must be whole.*allow_pickle=False"):
        Trace.read(file)
    assert not made.exists()


def test_no_code_asks_for_what_executes_data() -> None:
    """No pickle, no YAML with objects, no eval: arrays are read by one function."""
    folders = ("backends", "launch", "ringside", "ringside_core", "trainers")
    files = [file for folder in folders for file in (ROOT / folder).rglob("*.py")]
    words = re.compile(
        r"\bpickle\.|import pickle|allow_pickle=True|\byaml\.(unsafe_|full_)?load\(|(?<!\.)\beval\("
    )

    found = [f"{file}: {hit[0]}" for file in files if (hit := words.search(file.read_text()))]

    assert len(files) > 200
    assert found == []
