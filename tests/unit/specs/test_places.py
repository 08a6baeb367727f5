"""Hostfiles, TF_CONFIG and launchers' variables: read right, or refused with the reason."""

import json

import pytest

from ringside_core.specs import (
    Cluster,
    RefusalError,
    parse_hostfile,
    parse_tf_config,
    read_surroundings,
)

HOROVODRUN = {
    "HOROVOD_RANK": "3",
    "HOROVOD_SIZE": "4",
    "HOROVOD_LOCAL_RANK": "1",
    "HOROVOD_LOCAL_SIZE": "2",
}
MPIRUN = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}
PS = {"chief": ["a:1"], "worker": ["a:2", "b:1"], "ps": ["a:3"]}


def tf_config(cluster: object, kind: str = "worker", index: object = 0) -> str:
    """The text of a TF_CONFIG."""
    return json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a slots=0", "at least 1"),
        ("a slots=x", "at least 1"),
        ("a slots=٣", "at least 1"),
        ("a slots=" + "9" * 5000, "at most 1,000,000"),
        ("a:2", "Write `a slots=2`"),
        ("-V slots=2", "begin with a letter or a digit"),
        ("a..b slots=2", "1 to 63 characters"),
        ("b." + "a" * 64, "1 to 63 characters"),
        ("a slots=1\na slots=2", "once"),
        ("# nothing\n", "at least one host"),
        # `host:slots` and `host:port` have no place for IPv6; to a resolver capitals are no others.
        ("fe80::1", "by its name or its IPv4 address"),
        ("::1", "by its name or its IPv4 address"),
        ("node1\nNode1", "may stand in a hostfile once"),
    ],
)
def test_a_wrong_hostfile_is_refused(text: str, words: str) -> None:
    """The message quotes the line."""
    with pytest.raises(RefusalError, match=words) as refused:
        parse_hostfile(text, origin="hosts.txt")

    assert "hosts.txt" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "must be JSON"),
        (tf_config({"worker": ["a:1"]}, index=1), "inside the cluster"),
        (
            tf_config({"worker": ["a:1"]}, index="x"),
            "TF_CONFIG: index: Input should be a valid integer",
        ),
        (tf_config({"worker": ["a"]}), "host:port"),
        (tf_config({"worker": ["a:" + "9" * 5000]}), "host:port"),
        (tf_config({"worker": "a:1"}), r"TF_CONFIG: cluster\.worker: .* Received: 'a:1'"),
        (tf_config({"workers": ["a:1"]}), r"TF_CONFIG: cluster\.workers: Extra"),
        (tf_config({"worker": ["a:1"], "ps": ["a:2"]}), "must have a `chief`"),
        (tf_config({"chief": ["a:1"], "ps": ["a:2"]}, kind="ps"), "at least one `worker`"),
    ],
)
def test_a_broken_tf_config_is_refused(text: str, words: str) -> None:
    """Each has its own message: not JSON, a wrong index, `ps` without `chief` and more."""
    with pytest.raises(RefusalError, match=words):
        parse_tf_config(text)


def test_tf_config_goes_both_ways() -> None:
    """Every task is read back from what was written for it."""
    for task in parse_tf_config(tf_config(PS)).cluster.tasks():
        assert parse_tf_config(task.to_tf_config()) == task


def test_a_training_chief_is_rank_0() -> None:
    """Without servers the chief trains and comes before the workers, as in TensorFlow."""
    cluster = {"chief": ["a:1"], "worker": ["a:2", "b:1"]}

    ranks = [t.training_rank for t in parse_tf_config(tf_config(cluster)).cluster.tasks()]

    assert ranks == [0, 1, 2]


@pytest.mark.parametrize(
    ("env", "kind", "rank", "size", "backend"),
    [
        ({}, "alone", 0, 1, "serial"),
        (HOROVODRUN, "horovodrun", 3, 4, "horovod"),
        (MPIRUN, "mpirun", 1, 2, "horovod"),
        ({"TF_CONFIG": tf_config(PS, index=1)}, "tf_config", 1, 2, "parameter_server"),
        (
            {"TF_CONFIG": tf_config({"worker": ["a:1", "a:2"]}, index=1)},
            "tf_config", 1, 2, "multi_worker_mirrored",
        ),
    ],
)  # fmt: skip
def test_surroundings_are_read(
    env: dict[str, str], kind: str, rank: int, size: int, backend: str
) -> None:
    """The launcher, the place, and the backend that is meant without --backend."""
    found = read_surroundings(env)

    found_values = (found.kind, found.rank, found.size, found.default_backend)
    assert found_values == (kind, rank, size, backend)


@pytest.mark.parametrize(
    "env",
    [
        {"HOROVOD_RANK": "0"},
        {**HOROVODRUN, "HOROVOD_RANK": "²"},
        {**HOROVODRUN, "TF_CONFIG": tf_config({"worker": ["a:1"]})},
    ],
)
def test_half_a_launcher_or_two_are_refused(env: dict[str, str]) -> None:
    """A process has exactly one launcher, with all of its variables."""
    with pytest.raises(RefusalError):
        read_surroundings(env)


@pytest.mark.parametrize(
    ("environment", "value"),
    [
        ({}, "127.0.0.1,b"),
        ({"no_grpc_proxy": "x,b", "no_proxy": "y"}, "x,b,127.0.0.1"),
        ({"no_proxy": "y,"}, "y,127.0.0.1,b"),
    ],
)
def test_tasks_reach_each_other_past_a_proxy(environment: dict[str, str], value: str) -> None:
    """Each host is named once, beside what the user has excepted."""
    cluster = Cluster(chief=("127.0.0.1:1",), worker=("127.0.0.1:2", "b:1"))

    assert cluster.unproxied(environment) == value


PMI = {"PMI_RANK": "1", "PMI_SIZE": "2"}
SRUN = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "1",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_NODELIST": "a",
    "SLURM_STEP_TASKS_PER_NODE": "2",
}
ONE_TASK = {**SRUN, "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}
TORCH = {"RANK": "0", "WORLD_SIZE": "2"}


def node_a(nodelist: str) -> tuple[str, ...]:
    """What Slurm would answer."""
    return (nodelist,)


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({**PMI, "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}, "1 of 2 of MPICH or Intel MPI"),
        ({"PMI_ID": "1", "PMI_PORT": "a:1", "MPI_LOCALRANKID": "1"}, "1 of MPICH or Intel MPI"),
        ({**PMI, "PALS_RANKID": "1", "PALS_LOCAL_RANKID": "0"}, "1 of 2 of Cray PALS"),
        ({"ALPS_APP_PE": "3"}, "3 of Cray ALPS"),
        ({"MV2_COMM_WORLD_RANK": "0", "MV2_COMM_WORLD_SIZE": "8"}, "0 of 8 of MVAPICH2"),
        ({"JSM_NAMESPACE_RANK": "1", "JSM_NAMESPACE_SIZE": "2"}, "1 of 2 of jsrun"),
        ({"PMIX_RANK": "1", "PMIX_NAMESPACE": "x"}, "1 of PMIx"),
        ({**TORCH, "LOCAL_RANK": "0", "TORCHELASTIC_RUN_ID": "none"}, "0 of 2 of torchrun"),
        # Within a step of Slurm that did not start these processes itself.
        ({**ONE_TASK, **PMI}, "1 of 2 of MPICH"),
        ({**SRUN, "PMI_RANK": "3", "PMI_SIZE": "4"}, "3 of 4 of MPICH"),
        ({**SRUN, **TORCH, "WORLD_SIZE": "8", "TORCHELASTIC_RUN_ID": "7"}, "0 of 8 of torchrun"),
    ],
)
def test_a_launcher_that_is_not_served_is_refused(env: dict[str, str], words: str) -> None:
    """It starts several processes that know nothing of each other: each would train serially."""
    with pytest.raises(RefusalError, match=words) as refused:
        read_surroundings(env, node_a)

    assert "horovodrun, Open MPI's mpirun, srun or a TF_CONFIG" in str(refused.value)


@pytest.mark.parametrize(
    ("env", "kind", "place"),
    [
        ({"PMI_RANK": "0", "PMI_SIZE": "1"}, "alone", (0, 1)),
        ({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}, "alone", (0, 1)),
        ({"RANK": "gold", "WORLD_SIZE": "large"}, "alone", (0, 1)),
        (SRUN, "slurm", (1, 2)),
        ({**SRUN, **PMI}, "slurm", (1, 2)),  # srun --mpi=pmi2
        ({**SRUN, **PMI, "PALS_RANKID": "1"}, "slurm", (1, 2)),  # srun --mpi=cray_shasta
        ({**SRUN, **TORCH}, "slurm", (1, 2)),  # which a batch script exports to all tasks
        ({**ONE_TASK, "PMIX_RANK": "0"}, "alone", (0, 1)),  # srun --pty bash
        # In an allocation it starts its daemons by srun.
        ({**MPIRUN, "PMIX_RANK": "1", **TORCH, **ONE_TASK}, "mpirun", (1, 2)),
        ({"TF_CONFIG": tf_config({"worker": ["a:1", "a:2"]}), **PMI, **SRUN}, "tf_config", (0, 2)),
    ],
)  # fmt: skip
def test_variables_of_other_launchers_disturb_no_launcher_that_is_served(
    env: dict[str, str], kind: str, place: tuple[int, int]
) -> None:
    """srun and Open MPI set some of them too; a launcher of one process is as good as none."""
    found = read_surroundings(env, node_a)

    assert (found.kind, (found.rank, found.size)) == (kind, place)
