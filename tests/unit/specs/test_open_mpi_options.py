"""The options of Open MPI, as the variables that it reads."""

import pytest

from ringside.comparison.tuning import candidates
from ringside_core.specs import HorovodOptions, RefusalError
from tests.unit.stats.factory import arm_of


def test_what_is_chosen_is_said_as_open_mpi_reads_it() -> None:
    """Through the environment variable of its parameter."""
    flags = HorovodOptions(controller="mpi", btl_tcp_flags=9)

    assert flags.open_mpi_environment == {"OMPI_MCA_btl_tcp_flags": "9"}
    eager = HorovodOptions(controller="mpi", btl_tcp_eager_limit=65536)
    assert eager.open_mpi_environment == {"OMPI_MCA_btl_tcp_eager_limit": "65536"}
    ring = HorovodOptions(controller="mpi", coll_tuned_allreduce_algorithm="ring")
    assert ring.open_mpi_environment == {
        "OMPI_MCA_coll_tuned_allreduce_algorithm": "ring",
        "OMPI_MCA_coll_tuned_use_dynamic_rules": "1",
    }


@pytest.mark.parametrize("controller", ["gloo", None])
@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("btl_tcp_flags", 9),
        ("btl_tcp_eager_limit", 65536),
        ("coll_tuned_allreduce_algorithm", "ring"),
    ],
)
def test_only_mpi_has_such_an_option(option: str, value: int | str, controller: str | None) -> None:
    """Without a controller, most launches would use Gloo."""
    with pytest.raises(RefusalError, match=f"{option} is an option of Open MPI"):
        HorovodOptions(controller=controller, **{option: value})


@pytest.mark.parametrize(
    ("controller", "hosts", "there"),
    [("mpi", True, True), ("mpi", False, False), (None, True, False)],
)
def test_it_is_tried_where_it_has_an_effect(
    controller: str | None, hosts: bool, there: bool
) -> None:
    """Between hosts, under MPI; on one machine Open MPI uses shared memory."""
    arm = arm_of("horovod", 2, **({"controller": controller} if controller else {}))

    found = {name for name, _ in candidates(arm, gpus=False, hosts=hosts)}

    options = {"btl_tcp_flags", "btl_tcp_eager_limit", "coll_tuned_allreduce_algorithm"}
    assert options & found == (options if there else set())
    assert "cycle_time_ms" in found
