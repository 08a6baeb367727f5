"""Options of Open MPI, as the variables that it reads."""

import pytest

from compare.knobs import candidates
from specs import Arm, HorovodOptions, RefusalError


def test_what_is_left_open_is_left_to_open_mpi() -> None:
    """Default arms are as Horovod's users have them."""
    assert HorovodOptions(controller="mpi").open_mpi_environment == {}


def test_an_algorithm_comes_with_two_connections() -> None:
    """On one, both directions wait for each other, whatever the algorithm; a number is kept."""
    chosen = HorovodOptions(controller="mpi", coll_tuned_allreduce_algorithm="ring")

    assert chosen.open_mpi_environment == {
        "OMPI_MCA_coll_tuned_use_dynamic_rules": "1",
        "OMPI_MCA_coll_tuned_allreduce_algorithm": "ring",
        "OMPI_MCA_btl_tcp_links": "2",
    }
    assert chosen.replace(btl_tcp_links=1).open_mpi_environment["OMPI_MCA_btl_tcp_links"] == "1"
    alone = HorovodOptions(controller="mpi", btl_tcp_links=4)
    assert alone.open_mpi_environment == {"OMPI_MCA_btl_tcp_links": "4"}
    assert HorovodOptions(controller="mpi", btl_tcp_sndbuf=65536).open_mpi_environment == {
        "OMPI_MCA_btl_tcp_links": "2",
        "OMPI_MCA_btl_tcp_sndbuf": "65536",
    }


def test_gloo_has_no_such_options() -> None:
    """Each is refused by its name."""
    values = {"btl_tcp_links": 2, "btl_tcp_sndbuf": 1, "coll_tuned_allreduce_algorithm": "ring"}
    for name, value in values.items():
        with pytest.raises(RefusalError, match=f"{name} is an option of Open MPI"):
            HorovodOptions(controller="gloo", **{name: value})


@pytest.mark.parametrize(
    ("controller", "hosts", "there"),
    [("mpi", True, True), ("mpi", False, False), (None, True, False)],
)
def test_they_are_tried_where_they_have_an_effect(
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

    own = {"btl_tcp_links", "btl_tcp_sndbuf", "coll_tuned_allreduce_algorithm"}
    assert own & found == (own if there else set())
    assert "cycle_time_ms" in found
