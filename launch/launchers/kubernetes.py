"""Kubernetes manifests of a run: an MPIJob for ranks, Indexed Jobs for TF_CONFIG, or one Job.

Text only: nothing here talks to a cluster, and no cluster has run these manifests yet
(docs/kubernetes.md).
"""

import re
from pathlib import Path
from typing import Any

import yaml

from launch.launchers.pods import (
    CLAIM_FOLDER,
    LONGEST_LABEL,
    ROOT,
    SAVE_S,
    SPEC_FOLDER,
    Manifest,
    Pods,
    labels,
    spec_config_map,
    template,
)
from launch.plan import Plan, rank_names
from launch.site import Site
from ringside_core.specs import (
    AUTO,
    Cluster,
    ClusterTask,
    Placement,
    RefusalError,
    RunSpec,
    Topology,
    capabilities_of,
)
from ringside_core.specs.cluster import TaskType, refuse_too_long

# Paths that Containerfile sets.
PYTHON = f"{ROOT}/.venv/bin/python"
MPIRUN = f"{ROOT}/.venv/bin/mpirun"
SSH_FOLDER = "/home/ringside/.ssh"
SSHD_CONFIG = "/etc/ringside/sshd_config"
# Every pod has an address of its own, so one port is enough. It is above 1024: no pod runs as root.
PORT = 2222
# For each task: a run goes on from its newest checkpoint, but not for ever. The coordinator of a
# parameter-server run waits, without an error, until a lost worker joins again at its old address.
RESTARTS = 3


class Kubernetes(Pods):
    """Manifests for `kubectl apply -f -`: Ringside itself starts nothing."""

    def plan(self, spec: RunSpec, *, run_dir: Path, placement: Placement, site: Site) -> Plan:
        """The plan of a run in pods: a file, and no processes of ours.

        The folder of the run and the interpreter are those in the pods: `run_dir` and `placement`
        are about other machines, so they have no effect.

        Raises:
            RefusalError: a backend, a topology or a name with which such a run is not possible.
        """
        del run_dir, placement
        spec = _placed(spec, self)
        run = _Run(spec, self.replace(name=self.name or _name_of(spec)))
        return Plan(
            spec=spec,
            run_dir=run.folder,
            expects=run.task_names(),
            run_id=site.run_id,
            python=PYTHON,
            files={"run.yaml": _as_yaml(run.manifests())},
        )


def _as_yaml(manifests: list[Manifest]) -> str:
    """The same text for the same request."""
    return yaml.dump_all(
        manifests,
        Dumper=_Dumper,
        sort_keys=False,
        explicit_start=True,
        allow_unicode=True,
        width=100_000,  # no line is broken: a TF_CONFIG is read whole
    )


def _by_mpi(backend: str) -> bool:
    return "mpirun" in capabilities_of(backend).joins


def _placed(spec: RunSpec, pods: Pods) -> RunSpec:
    """The spec with its replicas in pods; what cannot run in pods is refused."""
    each, replicas = pods.replicas_per_pod, spec.topology.num_replicas
    needs = spec.capabilities.accelerator
    if needs is not None:
        raise RefusalError(
            "The pods have CPUs and GPUs.",
            received=f"backend {spec.backend}, which needs a {needs}",
        )
    if spec.options.horovod_controller == "gloo":
        raise RefusalError(
            "In an MPIJob Horovod's controller is MPI.",
            received="controller=gloo",
            advice="Leave -o controller=gloo away.",
        )
    if each > 1 and not _by_mpi(spec.backend):
        raise RefusalError(
            "Only the ranks of an MPIJob share pods.",
            received=f"replicas_per_pod={each} with backend {spec.backend}",
            advice="Leave --replicas-per-pod away.",
        )
    if replicas % each:
        raise RefusalError(
            "The replicas must fill whole pods.",
            received=f"{replicas} replicas, {each} per pod",
        )
    changes: dict[str, Any] = {"data_dir": spec.data_dir or f"{CLAIM_FOLDER}/data"}
    if _goes_on(spec):
        changes["resume_from"] = spec.resume_from or AUTO
    if spec.capabilities.process_model != "single":
        changes["topology"] = Topology(hosts=replicas // each, processes_per_host=each)
    return spec.replace(**changes)


def _goes_on(spec: RunSpec) -> bool:
    """Whether a run has checkpoints to go on from."""
    return spec.save == "all" and spec.options.passes_per_reduction == 1


def _name_of(spec: RunSpec) -> str:
    """The run's name as a label, short enough for the suffixes of its pods."""
    name = re.sub("[^a-z0-9]+", "-", spec.run_name.lower()).strip("-")
    name = name if name[0].isalpha() else f"run-{name}"
    room = LONGEST_LABEL - len(_longest_suffix(spec))
    if len(name) > room:
        hashed = name[-len("-01234567") :]
        name = name[: room - len(hashed)].rstrip("-") + hashed
    return name


def _longest_suffix(spec: RunSpec) -> str:
    """The longest suffix that a pod's host name adds to the name of the run."""
    if spec.capabilities.process_model == "single":
        return ""
    # (-launcher is as long as -worker-0, and -ps-N is longer from 10,000 servers for one worker.)
    servers = spec.options.num_servers
    last = (f"-worker-{spec.topology.hosts - 1}", f"-ps-{servers - 1}", "-chief-0")
    return max(last, key=len)


class _Run:
    """The objects of one run, each made once."""

    def __init__(self, spec: RunSpec, pods: Pods) -> None:
        self._spec = spec
        self._pods = pods
        self._name = pods.name
        self.folder = f"{CLAIM_FOLDER}/runs/{pods.name}"
        room = LONGEST_LABEL - len(_longest_suffix(spec))
        if len(pods.name) > room:
            raise RefusalError(
                f"name must leave room for {_longest_suffix(spec)}: the host name of a pod has at "
                f"most {LONGEST_LABEL} characters.",
                received=f"{pods.name!r}, {len(pods.name)} characters",
                advice=f"Choose a --name of at most {room}.",
            )

    def manifests(self) -> list[Manifest]:
        """The objects of the run, in the order in which they are made."""
        if self._spec.capabilities.process_model == "single":
            work = [self.job("replica", self.task_pod("replica"))]
        elif _by_mpi(self._spec.backend):
            work = [self.mpi_job()]
        else:
            work = [self.service(), *self.tf_config_jobs()]
        claim = [self.claim()] if self._pods.storage else []
        return [*claim, self.config_map(), self.network_policy(), *work]

    def task_names(self) -> tuple[str, ...]:
        """The tasks that write a record."""
        if "tf_config" not in self._spec.capabilities.joins:
            return rank_names(self._spec)
        return tuple(f"{kind}-{n}" for kind, count in self._tasks() for n in range(count))

    def claim(self) -> Manifest:
        """The storage for data and results, which all pods share."""
        spec: Manifest = {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": self._pods.storage}},
        }
        if self._pods.storage_class:
            spec["storageClassName"] = self._pods.storage_class
        # Without the label of this run: the claim holds data of other runs too.
        metadata = {**self._metadata(self._pods.claim), "labels": labels()}
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": metadata,
            "spec": spec,
        }

    def config_map(self) -> Manifest:
        """The spec. Nothing else is copied into the pods."""
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": self._metadata(spec_config_map(self._name)),
            "data": {"spec.json": self._spec.to_json() + "\n"},
        }

    def network_policy(self) -> Manifest:
        """Nobody but the pods of the run may connect to them: their servers ask for no password."""
        own = {"podSelector": {"matchLabels": labels(self._name)}}
        return {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": self._metadata(self._name),
            "spec": {**own, "policyTypes": ["Ingress"], "ingress": [{"from": [own]}]},
        }

    def service(self) -> Manifest:
        """Names for the pods, at once, because they wait for each other to be ready."""
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": self._metadata(self._name),
            "spec": {
                "clusterIP": "None",
                "publishNotReadyAddresses": True,
                "selector": labels(self._name),
                "ports": [{"name": "tensorflow", "port": PORT}],
            },
        }

    def job(self, role: str, pod: Manifest, *, tasks: int | None = None) -> Manifest:
        """A Job: `tasks` numbered pods that run together, or one pod without a number.

        A task that failed or was preempted is restarted in its place. A run cannot be joined later,
        so its other tasks fail too, and all begin again together.
        """
        restarts = RESTARTS * (tasks or 1) if pod["spec"]["restartPolicy"] == "OnFailure" else 0
        numbered: Manifest = {}
        if tasks is not None:
            numbered = {"completionMode": "Indexed", "completions": tasks, "parallelism": tasks}
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": self._metadata(self._name if tasks is None else f"{self._name}-{role}"),
            "spec": {
                **numbered,
                "backoffLimit": restarts,
                "activeDeadlineSeconds": self._pods.time_limit_s,
                "template": pod,
            },
        }

    def tf_config_jobs(self) -> list[Manifest]:
        """A Job for each type of task, because only workers have GPUs.

        The servers of a parameter-server run end by themselves, without an error, when the
        coordinator says that the training is over (`ParameterServer.serve`).
        """
        cluster = self._cluster()
        return [
            self.job(kind, self._tf_config_pod(cluster, kind), tasks=count)
            for kind, count in self._tasks()
        ]

    def _tasks(self) -> list[tuple[TaskType, int]]:
        """The types of tasks, and how many there are of each."""
        workers: tuple[TaskType, int] = ("worker", self._spec.topology.num_processes)
        if self._spec.capabilities.process_model != "coordinator":
            return [workers]
        return [("chief", 1), workers, ("ps", self._spec.options.num_servers)]

    def _cluster(self) -> Cluster:
        """The addresses: an Indexed Job names its pods <job>-<index>; a Service adds its name."""
        return Cluster(
            **{
                kind: tuple(f"{self._name}-{kind}-{n}.{self._name}:{PORT}" for n in range(count))
                for kind, count in self._tasks()
            }
        )

    def _tf_config_pod(self, cluster: Cluster, kind: TaskType) -> Manifest:
        """A pod that makes its TF_CONFIG from its number in the Job."""
        number = "JOB_COMPLETION_INDEX"
        text = ClusterTask(cluster=cluster, type=kind, index=0).to_tf_config()
        text = text.replace('"index": 0', f'"index": $({number})')
        refuse_too_long(text, cluster)
        field = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
        env: list[Manifest] = [
            # The Job adds this variable too, but after TF_CONFIG, which is made of it.
            {"name": number, "valueFrom": {"fieldRef": {"fieldPath": field}}},
            {"name": "TF_CONFIG", "value": text},
        ]
        pod = self.task_pod(kind, env=env)
        # A worker of a parameter-server run joins again also where nothing was saved.
        if kind == "worker" and cluster.ps:
            pod["spec"]["restartPolicy"] = "OnFailure"
        pod["spec"]["subdomain"] = self._name
        return pod

    @property
    def _restart_policy(self) -> str:
        return "OnFailure" if _goes_on(self._spec) else "Never"

    def task_pod(self, role: str, *, env: list[Manifest] | None = None) -> Manifest:
        """A pod of one task."""
        container: Manifest = {"command": list(self._task_command())}
        if env:
            container |= {"env": env, "ports": [{"name": "tensorflow", "containerPort": PORT}]}
        return template(self._pods, role, container, restart=self._restart_policy)

    def mpi_job(self) -> Manifest:
        """An MPIJob (kubeflow.org/v2beta1): sshd in each worker, mpirun in the launcher."""
        topology = self._spec.topology
        launcher: Manifest = {"command": self._mpirun()}
        sshd: Manifest = {
            "command": ["/usr/sbin/sshd", "-De", "-f", SSHD_CONFIG],
            "ports": [{"name": "ssh", "containerPort": PORT}],
            "readinessProbe": {"tcpSocket": {"port": PORT}},
        }
        return {
            "apiVersion": "kubeflow.org/v2beta1",
            "kind": "MPIJob",
            "metadata": self._metadata(self._name),
            "spec": {
                "slotsPerWorker": topology.processes_per_host,
                "mpiImplementation": "OpenMPI",
                "sshAuthMountPath": SSH_FOLDER,
                # Otherwise mpirun fails at the first sshd that does not answer yet.
                "launcherCreationPolicy": "WaitForWorkersReady",
                "runPolicy": {
                    "cleanPodPolicy": "Running",  # the workers: their sshd never ends
                    "backoffLimit": RESTARTS if _goes_on(self._spec) else 0,
                    "activeDeadlineSeconds": self._pods.time_limit_s,
                },
                "mpiReplicaSpecs": {
                    "Launcher": {
                        "replicas": 1,
                        "restartPolicy": self._restart_policy,
                        "template": template(self._pods, "launcher", launcher),
                    },
                    "Worker": {
                        "replicas": topology.hosts,
                        "restartPolicy": "Never",
                        "template": template(self._pods, "worker", sshd),
                    },
                },
            },
        }

    def _mpirun(self) -> list[str]:
        """The command, as mpirun.py writes it for other hosts; the operator adds the hostfile."""
        return [
            *(MPIRUN, "-np", str(self._spec.topology.num_processes)),
            *("--bind-to", "none", "--map-by", "slot"),
            *("--mca", "pml", "ob1", "--mca", "btl", "^openib"),
            # Pods may forbid process_vm_readv, though the machine that built the image allows it.
            *("--mca", "btl_vader_single_copy_mechanism", "none"),
            # mpirun passes SIGTERM on, and kills after this: until then its ranks can save.
            *("--mca", "odls_base_sigkill_timeout", str(SAVE_S - 10)),
            *("--prefix", f"{ROOT}/.venv", "-x", "PATH"),
            *self._task_command(),
        ]

    def _task_command(self) -> tuple[str, ...]:
        """The command of one task, without --log: `kubectl logs` shows its output."""
        spec_file = f"{SPEC_FOLDER}/spec.json"
        return (PYTHON, "-u", f"{ROOT}/train.py", "--spec", spec_file, "--run-dir", self.folder)

    def _metadata(self, name: str) -> Manifest:
        namespace = {"namespace": self._pods.namespace} if self._pods.namespace else {}
        return {"name": name, **namespace, "labels": labels(self._name)}


class _Dumper(yaml.SafeDumper):
    """Writes every value in its place, and keeps the lines of a text."""

    def ignore_aliases(self, data: Any) -> bool:
        """No `&id001`: a reader need not look for a value in another place."""
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)
