"""Manifests: their whole text, what is published of them, and whether their parts fit together."""

import json
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

import ringside.cli.main
from ringside_core.specs import RunSpec, read_surroundings

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests" / "golden" / "kubernetes"
# Name of the file: what prints it, after `ringside kubernetes`.
CASES = {
    "horovod": "--backend horovod --replicas 4 --image ringside:1 --name ring --gpus 2",
    "parameter_server": "--backend parameter_server --replicas 2 --image host:5000/ringside:1 "
    "--name servers --cpu 500m --memory 2Gi --claim data.me --gpus 1 -o servers=2",
    "mirrored": "--backend mirrored --replicas 2 --image ringside:1 --name alone --gpus 2 "
    "--data-dir gs://mine --save record",
}


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Callable[[str], str]:
    """What `ringside kubernetes` prints for a line of flags."""

    def printed(flags: str) -> str:
        assert ringside.cli.main.run(["kubernetes", *shlex.split(flags)]) == 0
        return capsys.readouterr().out

    return printed


def _pods(job: dict[str, Any]) -> Iterator[dict[str, Any]]:
    spec = job["spec"]
    replicas = spec.get("tfReplicaSpecs", spec.get("mpiReplicaSpecs", {"Job": spec}))
    for replica in replicas.values():
        yield replica["template"]


@pytest.mark.parametrize("case", CASES)
def test_the_whole_text(case: str, printed: Callable[[str], str]) -> None:
    """The object of each kind of run. The spec is beside it, in one line."""
    config, job = printed(CASES[case]).removeprefix("---\n").split("---\n")

    assert job == (GOLDEN / f"{case}.yaml").read_text()
    spec = RunSpec.from_json(yaml.safe_load(config)["data"]["spec.json"])
    assert spec.backend == case
    assert spec.resume_from == (None if case == "mirrored" else "auto")


@pytest.mark.parametrize("case", CASES)
def test_what_is_kubernetes_own_is_as_published(case: str, printed: Callable[[str], str]) -> None:
    """ConfigMap, Job, and the pods of Kubeflow's jobs fit the oldest and the newest schemas."""
    config, job = yaml.safe_load_all(printed(CASES[case]))
    pods = [{"apiVersion": "v1", "kind": "PodTemplate", "template": pod} for pod in _pods(job)]
    own = [config, *pods, *([job] if job["kind"] == "Job" else [])]

    for manifest in own:
        for version in ("1.25", kubernetes_validate.latest_version()):
            kubernetes_validate.validate(manifest, version, strict=True)
    assert pods


@pytest.mark.parametrize("case", CASES)
def test_what_is_named_is_there(case: str, printed: Callable[[str], str]) -> None:
    """The ConfigMap, the mounts, and the folder of the run on the claim."""
    config, job = yaml.safe_load_all(printed(CASES[case]))

    for pod in _pods(job):
        (container,) = pod["spec"]["containers"]
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert set(volumes) == set(mounts)
        assert volumes["spec"]["configMap"]["name"] == config["metadata"]["name"]
        command = container["command"]
        if "--spec" in command:
            assert command[command.index("--spec") + 1] == f"{mounts['spec']}/spec.json"
            assert command[-1] == f"{mounts['claim']}/runs/{job['metadata']['name']}"


def test_a_task_reads_the_tf_config_of_the_operator() -> None:
    """As Kubeflow's training-operator writes it: with `environment`, and the names of Services."""
    cluster = {kind: [f"servers-{kind}-0.lab.svc:2222"] for kind in ("chief", "worker", "ps")}
    task = {"type": "ps", "index": 0}
    text = json.dumps({"cluster": cluster, "task": task, "environment": "cloud"})

    assert read_surroundings({"TF_CONFIG": text}).task_name == "ps-0"


def test_a_long_name_is_shortened(printed: Callable[[str], str]) -> None:
    """The hash at its end tells two runs apart; a host name has room behind it."""
    flags = f"--backend horovod --replicas 2 --image i --workload w/{'my_long-name' * 9}.py:f"
    flags += " --global-batch 48 --epochs 3"  # the file is in the image only

    names = {
        next(yaml.safe_load_all(printed(f"{flags} --seed {seed}")))["metadata"]["name"]
        for seed in (1, 2)
    }

    assert len(names) == 2
    assert all(re.fullmatch(r"run-[-a-z0-9]{1,27}-[0-9a-f]{8}", name) for name in names)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--backend serial", "Missing option '--image'"),
        ("--backend tpu --image i", "which needs a TPU"),
        ("--backend horovod --image i -o controller=gloo", "ranks in them meet over MPI"),
        ("--backend multi_worker_mirrored --image i", "gets no TF_CONFIG"),
        ("--backend horovod --image i --name Run", "--name must be"),
        ("--backend horovod --image i --claim A_B", "--claim must be"),
        ("--backend horovod --image i --cpu potato", "--cpu must be"),
        ("--backend horovod --image i --memory -8Gi", "--memory must be"),
        (f"--backend serial --image i --name {'a' * 41}", "at most 40 characters"),
        ("--backend horovod --image i --cores-per-replica 1", "No such option"),
    ],
)
def test_refused(flags: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One message, exit code 2, and no output that kubectl could apply."""
    code = ringside.cli.main.run(["kubernetes", *shlex.split(flags)])

    said = capsys.readouterr()
    assert code == 2
    assert words in " ".join(said.err.split())
    assert said.out == ""


@pytest.mark.parametrize(
    "flags", ["--cpu 500m --memory 512M", "--cpu 0.5 --memory 1.5Gi", "--claim data.of.mine"]
)
def test_what_kubernetes_takes_is_taken(flags: str, printed: Callable[[str], str]) -> None:
    """Parts of a core, both kinds of units, and names with dots."""
    text = printed(f"--backend serial --image i {flags}")

    assert all(value in text for value in shlex.split(flags)[1::2])


def test_the_image_has_what_manifests_name() -> None:
    """Folder, user, port and sshd_config are those of the container file."""
    container_file = (ROOT / "Containerfile").read_text()
    sshd_config = (ROOT / "containers" / "sshd_config").read_text()
    job = yaml.safe_load((GOLDEN / "horovod.yaml").read_text())
    _, pod = _pods(job)
    (container,) = pod["spec"]["containers"]

    assert f"--uid {pod['spec']['securityContext']['runAsUser']} ringside" in container_file
    assert f"COPY containers/sshd_config {container['command'][-1]}\n" in container_file
    assert f"\nPort {container['readinessProbe']['tcpSocket']['port']}\n" in sshd_config
    assert f"{job['spec']['sshAuthMountPath']}/id_rsa" in sshd_config
