"""The option of Open MPI, as the variable that it reads."""

import pytest

from compare.knobs import candidates
from specs import Arm, HorovodOptions, RefusalError


def test_what_is_left_open_is_left_to_open_mpi() -> None:
    """Default arms are as Horovod's users have them."""
    assert HorovodOptions(controller="mpi").open_mpi_environment == {}


def test_what_is_chosen_is_said_as_open_mpi_reads_it() -> None:
    """By the variable of its parameter."""
    flags = HorovodOptions(controller="mpi", btl_tcp_flags=9)

    assert flags.open_mpi_environment == {"OMPI_MCA_btl_tcp_flags": "9"}


@pytest.mark.parametrize("controller", ["gloo", None])
def test_only_mpi_has_such_an_option(controller: str | None) -> None:
    """Left open, the controller would be Gloo in most launches."""
    with pytest.raises(RefusalError, match="btl_tcp_flags is an option of Open MPI"):
        HorovodOptions(controller=controller, btl_tcp_flags=9)


@pytest.mark.parametrize(
    ("controller", "hosts", "there"),
    [("mpi", True, True), ("mpi", False, False), (None, True, False)],
)
def test_it_is_tried_where_it_has_an_effect(
    controller: str | None, hosts: bool, there: bool
) -> None:
    """Between hosts, under MPI; within one machine Open MPI uses shared memory."""
    arm = Arm(
        label="horovod ×2",
        group="horovod",
        backend="horovod",
        options=HorovodOptions(controller=controller),
        replicas=2,
    )

    found = {name for name, _ in candidates(arm, gpus=False, hosts=hosts)}

    assert ("btl_tcp_flags" in found) == there
    assert "cycle_time_ms" in found
