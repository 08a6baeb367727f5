"""One Slurm for all tests of this folder."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.slurm.cluster import SlurmCluster, obstacle, slurm_cluster


@pytest.fixture(scope="package")
def _slurm() -> Iterator[SlurmCluster]:
    reason = obstacle()
    if reason:
        pytest.skip(reason)
    # A folder of pytest's has a name too long for the socket of munged.
    with (
        tempfile.TemporaryDirectory(prefix="ringside-slurm-") as folder,
        slurm_cluster(Path(folder)) as cluster,
    ):
        yield cluster


@pytest.fixture
def slurm(_slurm: SlurmCluster) -> Iterator[SlurmCluster]:
    """A Slurm of two nodes; what a test leaves in its queue is ended after it."""
    yield _slurm
    _slurm.end_jobs()
