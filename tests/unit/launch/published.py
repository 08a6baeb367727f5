"""What is published of Kubernetes and of Kubeflow's MPIJob, to hold manifests against."""

import re
from typing import Any, Literal

import kubernetes_validate
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt

# The oldest of which the package has the schemas (Indexed Jobs are stable since 1.24), the newest.
VERSIONS = ("1.25", kubernetes_validate.latest_version())
HOST_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")  # RFC 1035


class _Published(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class RunPolicy(_Published):
    cleanPodPolicy: Literal["None", "Running", "All"]  # noqa: N815
    ttlSecondsAfterFinished: NonNegativeInt | None = None  # noqa: N815
    activeDeadlineSeconds: NonNegativeInt | None = None  # noqa: N815
    backoffLimit: NonNegativeInt | None = None  # noqa: N815
    schedulingPolicy: dict[str, Any] | None = None  # noqa: N815
    suspend: bool = False
    managedBy: str | None = None  # noqa: N815


class ReplicaSpec(_Published):
    replicas: int = Field(ge=1)
    restartPolicy: Literal["Never", "OnFailure"]  # noqa: N815
    template: dict[str, Any]


class Launcher(ReplicaSpec):
    replicas: Literal[1]


class ReplicaSpecs(_Published):
    Launcher: Launcher
    Worker: ReplicaSpec


class MPIJobSpec(_Published):
    slotsPerWorker: NonNegativeInt  # noqa: N815
    runLauncherAsWorker: bool = False  # noqa: N815
    runPolicy: RunPolicy  # noqa: N815
    mpiReplicaSpecs: ReplicaSpecs  # noqa: N815
    sshAuthMountPath: str = Field(min_length=1)  # noqa: N815
    launcherCreationPolicy: Literal["AtStartup", "WaitForWorkersReady"] = "AtStartup"  # noqa: N815
    mpiImplementation: Literal["OpenMPI", "Intel", "MPICH"]  # noqa: N815


class MPIJob(_Published):
    """kubeflow.org/v2beta1: the fields of the API, and the rules of the operator's webhook.

    The package kubeflow-training has models of version 1 only, so this one is written down here
    from the API's documentation, pkg.go.dev/github.com/kubeflow/mpi-operator/pkg/apis/kubeflow/
    v2beta1, and what the operator refuses, pkg/apis/kubeflow/validation.
    """

    apiVersion: Literal["kubeflow.org/v2beta1"]  # noqa: N815
    kind: Literal["MPIJob"]
    metadata: dict[str, Any]
    spec: MPIJobSpec


def check(manifest: dict[str, Any]) -> None:
    """Refuse a manifest that does not fit what is published.

    Raises:
        kubernetes_validate.ValidationError: against the schemas of Kubernetes, strictly.
        pydantic.ValidationError: against those of an MPIJob.
        ValueError: a host name that no pod can have.
    """
    parts = [manifest]
    if manifest["kind"] == "MPIJob":
        job = MPIJob.model_validate(manifest)
        last = f"{job.metadata['name']}-worker-{job.spec.mpiReplicaSpecs.Worker.replicas - 1}"
        if not HOST_NAME.fullmatch(last):
            raise ValueError(last)
        pods = (job.spec.mpiReplicaSpecs.Launcher, job.spec.mpiReplicaSpecs.Worker)
        # The rest of an MPIJob is Kubernetes' own.
        parts = [
            {"apiVersion": "v1", "kind": "PodTemplate", "template": pod.template} for pod in pods
        ]
        # Its metadata is that of every object.
        parts.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": manifest["metadata"]})
    for part in parts:
        for version in VERSIONS:
            kubernetes_validate.validate(part, version, strict=True)
