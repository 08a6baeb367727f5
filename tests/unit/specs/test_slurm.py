"""A task of Slurm finds its place: from SLURM_* as real steps had them, against lists by hand."""

from itertools import pairwise

import pytest

from ringside_core.specs import RefusalError, read_surroundings
from ringside_core.specs.slurm import SlurmStep, tasks_per_node


def task(rank: int, *, node: int | None = None, **changed: str) -> dict[str, str]:
    """SLURM_* of a task of job 7, step 2: two tasks on the first of three nodes, then 1 and 1."""
    env = {
        "SLURM_JOB_ID": "7",
        "SLURM_STEP_ID": "2",
        "SLURM_PROCID": str(rank),
        "SLURM_NODEID": str([0, 0, 1, 2][rank] if node is None else node),
        "SLURM_LOCALID": str([0, 1, 0, 0][rank]),
        "SLURM_STEP_NUM_TASKS": "4",
        "SLURM_STEP_NODELIST": "node[1,4-5]",
        "SLURM_STEP_TASKS_PER_NODE": "2,1(x2)",
    }
    return env | changed


def three_nodes(nodelist: str) -> tuple[str, ...]:
    """What Slurm would answer."""
    assert nodelist == "node[1,4-5]"
    return ("10.0.0.1", "10.0.0.4", "10.0.0.5")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", (1,)),
        ("2(x3),1", (2, 2, 2, 1)),
        ("1,2,1(x2)", (1, 2, 1, 1)),
        ("16(x128)", (16,) * 128),
    ],
)
def test_run_length_lists(text: str, expected: tuple[int, ...]) -> None:
    """`2(x3)` means three nodes of two tasks."""
    assert tasks_per_node(text) == expected


@pytest.mark.parametrize(
    ("rank", "local_rank", "local_size"), [(0, 0, 2), (1, 1, 2), (2, 0, 1), (3, 0, 1)]
)
def test_place_of_a_rank(rank: int, local_rank: int, local_size: int) -> None:
    """Horovod's numbers, and the backend that is meant without --backend."""
    here = read_surroundings(task(rank), three_nodes).placed("horovod")

    assert (here.kind, here.rank, here.size) == ("slurm", rank, 4)
    assert (here.local_rank, here.local_size) == (local_rank, local_size)
    assert (here.task, here.task_name) == (None, f"rank-{rank}")
    assert here.default_backend == "horovod"


# Job 7, step 2: 20000 + (7 · 613 + 2 · 31) mod 10000 = 24353, which is kept for meeting; tasks of
# one address count up from the next.
BY_HAND = ("10.0.0.1:24354", "10.0.0.1:24355", "10.0.0.4:24354", "10.0.0.5:24354")


def test_workers_by_hand() -> None:
    """Every task computes the same list and finds itself in it."""
    tasks = [
        read_surroundings(task(rank), three_nodes).placed("multi_worker_mirrored").task
        for rank in range(4)
    ]

    assert [one and one.cluster.worker for one in tasks] == [BY_HAND] * 4
    assert [one and one.address for one in tasks] == list(BY_HAND)


def test_roles_by_hand() -> None:
    """The first rank coordinates, the last ones serve; only workers have slots."""
    here = [
        read_surroundings(task(rank), three_nodes).placed("parameter_server", servers=1)
        for rank in range(4)
    ]

    assert [one.task_name for one in here] == ["chief-0", "worker-0", "worker-1", "ps-0"]
    assert [one.size for one in here] == [2] * 4
    assert [(one.local_rank, one.local_size) for one in here] == [(0, 1), (0, 1), (0, 1), (0, 1)]
    assert here[0].task is not None
    cluster = here[0].task.cluster
    assert (cluster.chief, cluster.worker, cluster.ps) == (BY_HAND[:1], BY_HAND[1:3], BY_HAND[3:])


def test_jobs_at_once_share_no_port() -> None:
    """Jobs with neighbouring numbers, and steps of one job, use different ports."""
    firsts = sorted(
        SlurmStep(
            job_id=job, step_id=number, rank=0, tasks_per_node=(2,), addresses=("a",)
        ).first_port
        for job in range(1000, 1012)
        for number in range(4)
    )

    assert min(b - a for a, b in pairwise(firsts)) >= 31
    assert firsts[0] >= 20000
    assert firsts[-1] < 30000


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"SLURM_STEP_NUM_TASKS": "2"}, "together"),
        (task(0, SLURM_PROCID="x"), "together"),
        (task(0, SLURM_STEP_NUM_TASKS="5"), "must agree"),
        *(
            (task(0, SLURM_STEP_TASKS_PER_NODE=text), r"must read like 2\(x3\),1")
            for text in ("2(3)", "x", "1,,1", "2(x3) 1", "2;2")
        ),
        (task(0, SLURM_STEP_TASKS_PER_NODE="2(x2)"), "as many addresses as nodes"),
        (task(1, node=1), "fill one node after the other"),
        (task(0, SLURM_DISTRIBUTION="cyclic"), "fill one node after the other"),
    ],
)
def test_broken_surroundings_are_refused(env: dict[str, str], words: str) -> None:
    """One message shows what was received."""
    with pytest.raises(RefusalError, match=words):
        read_surroundings(env, three_nodes)
