"""Kubernetes manifests of a run: Kubeflow's MPIJob or TFJob, or one plain Job.

Text only: no cluster has run these manifests yet (docs/kubernetes.md).
"""

import json
import re
from pathlib import Path
from typing import Any, Self

import yaml
from pydantic import Field, NonNegativeInt, model_validator

from launch.plan import Plan, rank_names
from launch.site import Site
from ringside_core.specs import AUTO, Noun, Placement, RefusalError, RunSpec, Topology

ROOT = "/ringside"  # as Containerfile has it
FOLDERS = {"spec": "/etc/ringside/spec", "claim": "/mnt/ringside", "memory": "/dev/shm"}
RESTARTS = 3  # a run goes on from its newest checkpoint, but not for ever
SAVE_S = 120  # from SIGTERM to SIGKILL: to agree, save and end (trainers/preemption.py)
LONGEST = 40  # name of a run: a pod's host name adds to it, and has at most 63 characters
SSHD = ["/usr/sbin/sshd", "-De", "-f", "/etc/ringside/sshd_config"]
# As mpirun.py has it for other hosts; the operator adds the hostfile. Pods may forbid
# process_vm_readv, though the machine that built the image allows it (single copy). mpirun passes
# SIGTERM on, and kills after a time: until then its ranks can save.
MPIRUN = (
    f"{ROOT}/.venv/bin/mpirun --bind-to none --mca pml ob1 --mca btl ^openib --mca "
    "btl_vader_single_copy_mechanism none --mca odls_base_sigkill_timeout "
    f"{SAVE_S - 10} --prefix {ROOT}/.venv -x PATH"
).split()
# What a value must match, and in words.
RULES = {
    "name": (
        rf"(?=.{{0,{LONGEST}}}$)([a-z]([-a-z0-9]*[a-z0-9])?)?",
        f"a-z, 0-9 and -, with a letter first and at most {LONGEST} characters, such as run-1",
    ),
    "claim": (
        r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
        "the name of a PersistentVolumeClaim: a-z, 0-9, - and dots, such as ringside",
    ),
    "cpu": (r"(?=.*[1-9])[0-9]+(m|\.[0-9]+)?", "a number of cores, such as 4, 0.5 or 500m"),
    "memory": (
        r"(?=.*[1-9])[0-9]+(\.[0-9]+)?(k|[MGTPE]|[KMGTPE]i)?",
        "a number of bytes, such as 8Gi or 512M",
    ),
}
Manifest = dict[str, Any]


class Kubernetes(Noun):
    """Manifests for `kubectl apply -f -`, and what a run's spec does not say of its pods.

    Attributes:
        image: made from Containerfile, where the nodes can pull it.
        name: of the run and of its objects; empty: from the spec.
        claim: the PersistentVolumeClaim (ReadWriteMany) for data and results.
        cpu, memory: of a pod, as Kubernetes writes quantities (requests = limits).
        gpus: nvidia.com/gpu of a pod with replicas.
    """

    image: str = Field(min_length=1)
    name: str = ""
    claim: str = "ringside"
    cpu: str = "4"
    memory: str = "8Gi"
    gpus: NonNegativeInt = 0

    @model_validator(mode="after")
    def _kubernetes_takes_it(self) -> Self:
        for flag, (pattern, words) in RULES.items():
            if not re.fullmatch(pattern, given := getattr(self, flag)):
                raise RefusalError(f"--{flag} must be {words}.", received=repr(given))
        return self

    def plan(self, spec: RunSpec, *, run_dir: Path, placement: Placement, site: Site) -> Plan:
        """A file and no processes: `run_dir` and `placement` are of other machines.

        Raises:
            RefusalError: a backend or a topology with which no run is possible in pods.
        """
        spec, expects = _in_pods(spec), rank_names(spec)
        name = self.name or _label(spec.run_name)
        task = [f"{ROOT}/.venv/bin/python", "-u", f"{ROOT}/train.py", "--spec"]
        task += [f"{FOLDERS['spec']}/spec.json", "--run-dir", f"{FOLDERS['claim']}/runs/{name}"]
        restarts = {"backoffLimit": RESTARTS if spec.resume_from else 0}
        policy = {"restartPolicy": "OnFailure" if spec.resume_from else "Never"}
        processes = spec.topology.num_processes

        def replicas(role: str, count: int, command: list[str] = task) -> Manifest:
            return {"replicas": count, **policy, "template": self._pod(name, role, command)}

        if spec.capabilities.process_model == "single":
            version, kind = "batch/v1", "Job"
            work = {**restarts, "template": self._pod(name, "replica", task, **policy)}
        elif "mpirun" in spec.capabilities.joins:
            version, kind = "kubeflow.org/v2beta1", "MPIJob"
            work = {
                "sshAuthMountPath": "/home/ringside/.ssh",
                # Otherwise mpirun fails at the first sshd that does not answer yet.
                "launcherCreationPolicy": "WaitForWorkersReady",
                # The sshd of the workers never ends.
                "runPolicy": {"cleanPodPolicy": "Running", **restarts},
                "mpiReplicaSpecs": {
                    "Launcher": replicas("launcher", 1, [*MPIRUN, "-np", str(processes), *task]),
                    "Worker": replicas("worker", processes, SSHD),
                },
            }
        else:
            version, kind = "kubeflow.org/v1", "TFJob"
            counts = {"Worker": processes}
            if spec.capabilities.process_model == "coordinator":
                counts = {"Chief": 1, **counts, "PS": spec.options.num_servers}
            work = {
                # Servers and workers end by themselves, once their records are written.
                "runPolicy": {"cleanPodPolicy": "None", **restarts},
                "tfReplicaSpecs": {k: replicas(k.lower(), n) for k, n in counts.items()},
            }
            expects = tuple(f"{k.lower()}-{n}" for k in counts for n in range(counts[k]))
        named = {"metadata": {"name": name}}
        data = {"spec.json": json.dumps(json.loads(spec.to_json()))}
        manifests = [
            {"apiVersion": "v1", "kind": "ConfigMap", **named, "data": data},
            {"apiVersion": version, "kind": kind, **named, "spec": work},
        ]
        # By way of JSON: yaml would write a part that stands twice as a reference.
        text = yaml.safe_dump_all(
            json.loads(json.dumps(manifests)), sort_keys=False, explicit_start=True, width=10**6
        )
        return Plan(
            spec=spec,
            run_dir=task[-1],
            expects=expects,
            run_id=site.run_id,
            python=task[0],
            files={"run.yaml": text},
        )

    def _pod(self, name: str, role: str, command: list[str], **spec: str) -> Manifest:
        """A pod's template; the name and the annotation are those that a TFJob needs."""
        size = {"cpu": self.cpu, "memory": self.memory}
        if self.gpus and role in ("worker", "replica"):
            size["nvidia.com/gpu"] = str(self.gpus)
        container = {
            "name": "tensorflow",
            "image": self.image,
            "command": command,
            # mpirun only starts ranks and forwards their output.
            "resources": {} if role == "launcher" else {"requests": size, "limits": size},
            "volumeMounts": [{"name": k, "mountPath": path} for k, path in FOLDERS.items()],
            **({"readinessProbe": {"tcpSocket": {"port": 2222}}} if command is SSHD else {}),
        }
        volumes = [
            {"name": "spec", "configMap": {"name": name}},
            {"name": "claim", "persistentVolumeClaim": {"claimName": self.claim}},
            # Without it /dev/shm has 64 MiB. Its contents count as memory of the pod.
            {"name": "memory", "emptyDir": {"medium": "Memory"}},
        ]
        return {
            "metadata": {"annotations": {"sidecar.istio.io/inject": "false"}},
            "spec": {
                "terminationGracePeriodSeconds": SAVE_S,
                "securityContext": {"runAsUser": 1000, "fsGroup": 1000},  # as Containerfile has it
                "containers": [container],
                "volumes": volumes,
                **spec,
            },
        }


def _in_pods(spec: RunSpec) -> RunSpec:
    """The spec with one process in each pod; what cannot run in pods is refused."""
    replicas, needs = spec.topology.num_replicas, spec.capabilities.accelerator
    if needs or spec.options.horovod_controller == "gloo":
        raise RefusalError(
            "Pods have CPUs and GPUs, and Horovod's ranks in them meet over MPI.",
            received=f"{spec.backend}, which needs a {needs}" if needs else "-o controller=gloo",
        )
    alone = replicas == 1 and not spec.options.num_servers
    if alone and "tf_config" in spec.capabilities.joins:
        raise RefusalError(
            "A TFJob of one process gets no TF_CONFIG.",
            received=f"{spec.backend} with one replica",
            advice="Use --replicas 2, or --backend serial.",
        )
    single = spec.capabilities.process_model == "single"
    return spec.replace(
        data_dir=spec.data_dir or f"{FOLDERS['claim']}/data",
        resume_from=spec.resume_from or (AUTO if spec.save == "all" else None),
        topology=spec.topology if single else Topology(hosts=replicas),
    )


def _label(name: str) -> str:
    """The name of a run as a label; a long one keeps its hash."""
    label = re.sub("[^a-z0-9]+", "-", f"run-{name}".lower()).strip("-")
    return label if len(label) <= LONGEST else f"{label[: LONGEST - 9].rstrip('-')}-{label[-8:]}"
