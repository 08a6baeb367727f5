"""Manifests: their whole text, what is published of them, and whether their parts fit together."""

import copy
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pydantic
import pytest
import yaml

import ringside.cli.main
from ringside_core.specs import RunSpec, read_surroundings
from tests.unit.launch.published import HOST_NAME, check

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests" / "golden" / "kubernetes"
Manifests = list[dict[str, Any]]

# Name of the file: what prints it, after `ringside kubernetes`.
CASES = {
    "horovod": "--workload digits --backend horovod --replicas 4 --image ringside:1 "
    "--replicas-per-pod 2 --gpus 2 --namespace lab --storage 20Gi --storage-class nfs "
    "-o fusion_threshold_mb=0",
    "multi_worker_mirrored": "--workload digits --backend multi_worker_mirrored --replicas 3 "
    "--image ringside:1 --cpu 500m --memory 2Gi --claim data.me --time-limit 600 "
    "-o implementation=RING",
    "parameter_server": "--workload digits --backend parameter_server --replicas 2 "
    "--image host:5000/ringside:1 --name two-servers --gpus 1 -o servers=2",
    "mirrored": "--workload digits --backend mirrored --replicas 2 --image ringside:1 --gpus 2 "
    "--data-dir gs://mine",
}
LONG = "w/my_workload-with-a-name-that-goes-on-and-on-and-on-and-on-and-on.py:f"


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Callable[[str], str]:
    """What `ringside kubernetes` prints for a line of flags."""

    def printed(flags: str) -> str:
        assert ringside.cli.main.run(["kubernetes", *shlex.split(flags)]) == 0
        return capsys.readouterr().out

    return printed


def _golden(case: str) -> Manifests:
    return list(yaml.safe_load_all((GOLDEN / f"{case}.yaml").read_text()))


def _of(kind: str, manifests: Manifests) -> Manifests:
    return [manifest for manifest in manifests if manifest["kind"] == kind]


def _templates(manifests: Manifests) -> Iterator[dict[str, Any]]:
    for job in _of("Job", manifests):
        yield job["spec"]["template"]
    for job in _of("MPIJob", manifests):
        for replica in job["spec"]["mpiReplicaSpecs"].values():
            yield replica["template"]


@pytest.mark.parametrize("case", CASES)
def test_the_whole_text(case: str, printed: Callable[[str], str]) -> None:
    """The whole manifests of each kind of run."""
    assert printed(CASES[case]) == (GOLDEN / f"{case}.yaml").read_text()


@pytest.mark.parametrize("case", CASES)
def test_manifests_are_as_published(case: str) -> None:
    """Each object fits the schemas of the oldest and the newest Kubernetes, and of an MPIJob."""
    manifests = _golden(case)

    for manifest in manifests:
        check(manifest)
    assert len(manifests) > 1


@pytest.mark.parametrize(
    ("case", "kind", "path", "value"),
    [
        ("horovod", "PersistentVolumeClaim", "spec.accessModes", "ReadWriteMany"),
        ("horovod", "ConfigMap", "data", ["spec.json"]),
        ("horovod", "MPIJob", "metadata.label", {}),
        ("horovod", "MPIJob", "metadata.name", "1-begins-with-a-digit"),
        ("horovod", "MPIJob", "metadata.name", "long" * 14),
        ("horovod", "MPIJob", "spec.slotPerWorker", 1),
        ("horovod", "MPIJob", "spec.slotsPerWorker", "1"),
        ("horovod", "MPIJob", "spec.mpiImplementation", "openmpi"),
        ("horovod", "MPIJob", "spec.runPolicy.cleanPodPolicy", "running"),
        ("horovod", "MPIJob", "spec.mpiReplicaSpecs.Launcher.replicas", 2),
        ("horovod", "MPIJob", "spec.mpiReplicaSpecs.Worker.restartPolicy", "Always"),
        ("horovod", "MPIJob", "spec.mpiReplicaSpecs.Worker.template.spec.volumes", {}),
        ("horovod", "MPIJob", "spec.mpiReplicaSpecs.Launcher.template.spec.container", []),
        ("multi_worker_mirrored", "Service", "spec.clusterIp", "None"),
        ("multi_worker_mirrored", "Service", "spec.publishNotReadyAddresses", "true"),
        ("multi_worker_mirrored", "Job", "spec.completions", "3"),
        ("multi_worker_mirrored", "Job", "spec.completionMod", "Indexed"),
        ("multi_worker_mirrored", "Job", "spec.template.spec.restart", "Never"),
        ("mirrored", "Job", "spec.template.spec.containers", None),
        ("mirrored", "NetworkPolicy", "spec.podSelector.matchLabel", {}),
    ],
)
def test_a_broken_manifest_is_found(case: str, kind: str, path: str, value: object) -> None:
    """The checks can fail: a wrong name, type or word is found in every kind of object."""
    manifest = copy.deepcopy(_of(kind, _golden(case))[0])
    *way, last = path.split(".")
    place = manifest
    for name in way:
        place = place[name]
    place[last] = value

    with pytest.raises((kubernetes_validate.ValidationError, pydantic.ValidationError, ValueError)):
        check(manifest)


@pytest.mark.parametrize("case", CASES)
def test_only_pods_of_the_run_reach_its_pods(case: str) -> None:
    """TensorFlow's servers, mpirun's daemons and sshd ask nobody, or little, who he is."""
    manifests = _golden(case)
    (policy,) = _of("NetworkPolicy", manifests)
    own = policy["spec"]["podSelector"]["matchLabels"]

    assert policy["spec"] == {
        "podSelector": {"matchLabels": own},
        "policyTypes": ["Ingress"],
        "ingress": [{"from": [{"podSelector": {"matchLabels": own}}]}],
    }
    assert own["app.kubernetes.io/instance"] == policy["metadata"]["name"]
    templates = list(_templates(manifests))
    assert templates
    assert all(own.items() <= one["metadata"]["labels"].items() for one in templates)
    # There before the first pod is.
    kinds = [manifest["kind"] for manifest in manifests]
    assert kinds.index("NetworkPolicy") < min(
        at for at, kind in enumerate(kinds) if kind in ("Job", "MPIJob")
    )


@pytest.mark.parametrize("case", CASES)
def test_what_is_named_is_there(case: str) -> None:
    """Volumes, ConfigMaps, claims, Services and run folders are those of the same run."""
    manifests = _golden(case)
    maps = {one["metadata"]["name"] for one in _of("ConfigMap", manifests)}
    claims = {one["metadata"]["name"] for one in _of("PersistentVolumeClaim", manifests)}

    for template in _templates(manifests):
        pod = template["spec"]
        (container,) = pod["containers"]
        volumes = {volume["name"]: volume for volume in pod.get("volumes", [])}
        mounts = {mount["name"]: mount["mountPath"] for mount in container.get("volumeMounts", [])}
        assert set(volumes) == set(mounts)
        for volume in volumes.values():
            if "configMap" in volume:
                assert volume["configMap"]["name"] in maps
            if "persistentVolumeClaim" in volume and claims:
                assert volume["persistentVolumeClaim"]["claimName"] in claims
        if "--spec" in container["command"] and mounts:
            command = container["command"]
            spec_file = Path(command[command.index("--spec") + 1])
            assert str(spec_file.parent) == mounts["spec"]
            assert command[command.index("--run-dir") + 1].startswith(f"{mounts['claim']}/runs/")
        for service in _of("Service", manifests):
            assert pod["subdomain"] == service["metadata"]["name"]
            assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    (spec_map,) = _of("ConfigMap", manifests)
    RunSpec.from_json(spec_map["data"]["spec.json"])


def _expanded(env: Manifests, annotations: dict[str, str]) -> dict[str, str]:
    """A container's environment, as the kubelet makes it: in order, $(NAME) from what came before.

    Source: Kubernetes, "Define Dependent Environment Variables".
    """
    known: dict[str, str] = {}
    for one in env:
        if "valueFrom" in one:
            path = one["valueFrom"]["fieldRef"]["fieldPath"]
            key = re.fullmatch(r"metadata\.annotations\['(.*)'\]", path)
            assert key is not None
            known[one["name"]] = annotations[key[1]]
        else:
            known[one["name"]] = re.sub(
                r"\$\((\w+)\)", lambda found: known.get(found[1], found[0]), one["value"]
            )
    return known


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("multi_worker_mirrored", ["worker-0", "worker-1", "worker-2"]),
        ("parameter_server", ["chief-0", "worker-0", "worker-1", "ps-0", "ps-1"]),
    ],
)
def test_every_pod_finds_itself(case: str, expected: list[str]) -> None:
    """Its number in the Job selects the task whose address is the pod's own host name."""
    found = []
    for job in _of("Job", _golden(case)):
        pod = job["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert job["spec"]["completions"] == job["spec"]["parallelism"]
        for number in range(job["spec"]["completions"]):
            env = _expanded(
                container["env"], {"batch.kubernetes.io/job-completion-index": str(number)}
            )
            task = read_surroundings(env).task
            assert task is not None
            host = f"{job['metadata']['name']}-{number}.{pod['subdomain']}"
            assert task.address == f"{host}:{container['ports'][0]['containerPort']}"
            found.append(task.name)

    assert found == expected


def test_replicas_are_where_the_spec_says() -> None:
    """Four ranks in two pods of two are two hosts of two processes; the tasks see the same spec."""
    manifests = _golden("horovod")
    (job,) = _of("MPIJob", manifests)
    spec = RunSpec.from_json(_of("ConfigMap", manifests)[0]["data"]["spec.json"])
    command = job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0][
        "command"
    ]

    assert (spec.topology.hosts, spec.topology.processes_per_host) == (2, 2)
    assert job["spec"]["slotsPerWorker"] == 2
    assert job["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] == 2
    assert command[command.index("-np") + 1] == "4"


def test_who_has_gpus() -> None:
    """Pods with replicas do; launcher, coordinator and servers do not."""
    holders = {
        (case, template["spec"]["containers"][0]["name"])
        for case in CASES
        for template in _templates(_golden(case))
        if "nvidia.com/gpu" in template["spec"]["containers"][0]["resources"]["limits"]
    }

    assert holders == {
        ("horovod", "worker"),
        ("parameter_server", "worker"),
        ("mirrored", "replica"),
    }


@pytest.mark.parametrize("backend", ["horovod", "multi_worker_mirrored", "parameter_server"])
def test_a_long_name_is_shortened(backend: str, printed: Callable[[str], str]) -> None:
    """Pods have valid host names for any workload name; the hash tells two runs apart."""
    flags = f"--backend {backend} --replicas 12 --image i --workload {LONG}"
    names = set()
    for seed in (1, 2):
        manifests = list(yaml.safe_load_all(printed(f"{flags} --seed {seed}")))
        for job in (*_of("Job", manifests), *_of("MPIJob", manifests)):
            name = job["metadata"]["name"]
            last = name if job["kind"] == "Job" else f"{name}-worker"
            assert HOST_NAME.fullmatch(f"{last}-11")
            names.add(name)

    assert len(names) == {"parameter_server": 6}.get(backend, 2)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--backend serial", "Missing option '--image'"),
        ("--backend serial --image 'a b'", "image must be a reference"),
        ("--backend tpu --image i", "which needs a TPU"),
        ("--backend horovod --image i -o controller=gloo", "Horovod's controller is MPI"),
        ("--backend horovod --image i --replicas 3 --replicas-per-pod 2", "fill whole pods"),
        ("--backend mirrored --image i --replicas 2 --replicas-per-pod 2", "ranks of an MPIJob"),
        ("--backend horovod --image i --name Run", "label of RFC 1123"),
        ("--backend horovod --image i --name -a", "label of RFC 1123"),
        ("--backend horovod --image i --name 4you", "begin with a letter"),
        (f"--backend horovod --image i --name {'a' * 55}", "at most 54"),
        (f"--backend serial --image i --name {'a' * 64}", "label of RFC 1123"),
        ("--backend horovod --image i --namespace a.b", "label of RFC 1123"),
        ("--backend horovod --image i --claim a..b", "claim must be a name"),
        ("--backend horovod --image i --storage 1Gi --storage-class A", "storage_class must be"),
        ("--backend horovod --image i --storage-class a", "without storage"),
        ("--backend horovod --image i --cpu 0.0", "above 0"),
        ("--backend horovod --image i --cpu four", "number of cores"),
        ("--backend horovod --image i --memory 8", "with its unit"),
        ("--backend horovod --image i --memory 8GB", "with its unit"),
        ("--backend horovod --image i --storage 0Gi", "above 0"),
        ("--backend horovod --image i --gpus -1", "gpus"),
        ("--backend horovod --image i --time-limit 0", "time-limit"),
        ("--backend horovod --image i --cores-per-replica 1", "No such option"),
        (
            "--backend multi_worker_mirrored --image i --replicas 2000 --global-batch 2000",
            "fit into 131,061 characters",
        ),
        (  # said before each of them is told of all the others
            "--backend multi_worker_mirrored --image i --replicas 50000 --global-batch 50000",
            "for 50,000 tasks",
        ),
    ],
)
def test_refused(flags: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One message, exit code 2, and no output that kubectl could apply."""
    code = ringside.cli.main.run(["kubernetes", *shlex.split(flags)])

    said = capsys.readouterr()
    assert code == 2
    assert words in " ".join(said.err.split())
    assert said.out == ""


def test_the_image_has_what_manifests_name() -> None:
    """Folder, user, port and sshd_config are those of the container file."""
    container_file = (ROOT / "Containerfile").read_text()
    (job,) = _of("MPIJob", _golden("horovod"))
    template = job["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]
    (container,) = template["containers"]
    sshd, port = container["command"][-1], container["ports"][0]["containerPort"]

    assert f"WORKDIR {container['workingDir']}\n" in container_file
    assert f"useradd --create-home --uid {template['securityContext']['runAsUser']} ringside" in (
        container_file
    )
    assert f"COPY containers/sshd_config {sshd}\n" in container_file
    assert f"\nPort {port}\n" in (ROOT / "containers" / "sshd_config").read_text()
    assert f"{job['spec']['sshAuthMountPath']}/id_rsa" in (
        (ROOT / "containers" / "sshd_config").read_text()
    )
