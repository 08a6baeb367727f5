"""The pods of a run on Kubernetes: what a person asks for, and the pod template."""

import re
from typing import Any, Self

from pydantic import NonNegativeInt, PositiveInt, model_validator

from ringside_core.specs import Noun, RefusalError

Manifest = dict[str, Any]

# Paths and the user that Containerfile sets.
ROOT = "/ringside"
USER_ID = 1000
# Where the pods have the spec and the claim.
SPEC_FOLDER = "/etc/ringside/spec"
CLAIM_FOLDER = "/mnt/ringside"
# mpirun only starts ranks and forwards their output.
LAUNCHER_RESOURCES = {"cpu": "1", "memory": "1Gi"}
# From SIGTERM to SIGKILL: for the tasks to agree, save and end (trainers/preemption.py).
SAVE_S = 120
LONGEST_LABEL = 63
LONGEST_SUBDOMAIN = 253

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")  # RFC 1123
_SUBDOMAIN = re.compile(rf"{_LABEL.pattern}(\.{_LABEL.pattern})*")
_IMAGE = re.compile(r"[A-Za-z0-9][\w.:/@-]*")
_CPU = re.compile(r"\d+(\.\d{1,3})?|\d+m")
_BYTES = re.compile(r"\d+(\.\d+)?([KMGTPE]i|[kMGTPE])")


class Pods(Noun):
    """The pods of a run: what its spec does not say.

    Attributes:
        image: made from Containerfile, where the nodes can pull it.
        name: name of the run and of all its objects; empty: from the spec.
        namespace: empty: the namespace of kubectl's context.
        replicas_per_pod: ranks of an MPIJob in one pod.
        cpu, memory: for each pod that holds replicas or variables, as Kubernetes writes quantities.
            A pod gets exactly that (requests = limits).
        gpus: nvidia.com/gpu for each pod that holds replicas.
        claim: the PersistentVolumeClaim for data and results, shared by all pods (ReadWriteMany).
        storage: make that claim, with this size; empty: it exists already.
        storage_class: of a claim that is made; empty: the cluster's default.
        time_limit_s: the run is ended after this time, because nobody watches its progress there.
    """

    image: str
    name: str = ""
    namespace: str = ""
    replicas_per_pod: PositiveInt = 1
    cpu: str = "4"
    memory: str = "8Gi"
    gpus: NonNegativeInt = 0
    claim: str = "ringside"
    storage: str = ""
    storage_class: str = ""
    time_limit_s: PositiveInt = 86_400

    @model_validator(mode="after")
    def _are_what_kubernetes_takes(self) -> Self:
        if not _IMAGE.fullmatch(self.image):
            raise RefusalError(
                "image must be a reference such as registry/ringside:1.", received=repr(self.image)
            )
        for what, label in (("name", self.name), ("namespace", self.namespace)):
            if label and not (_LABEL.fullmatch(label) and len(label) <= LONGEST_LABEL):
                raise RefusalError(
                    f"{what} must be a label of RFC 1123: at most {LONGEST_LABEL} small letters, "
                    "digits and dashes, no dash at either end.",
                    received=repr(label),
                )
        if self.name[:1].isdigit():
            raise RefusalError(
                "name must begin with a letter: a Service is called so.", received=repr(self.name)
            )
        for what, name in (("claim", self.claim), ("storage_class", self.storage_class)):
            optional = what == "storage_class"
            if (
                not (_SUBDOMAIN.fullmatch(name) or (optional and not name))
                or len(name) > LONGEST_SUBDOMAIN
            ):
                raise RefusalError(
                    f"{what} must be a name of RFC 1123: small letters, digits, dashes and dots.",
                    received=repr(name),
                )
        if self.storage_class and not self.storage:
            raise RefusalError(
                "A storage class is of a claim that is made.",
                received=f"storage_class={self.storage_class!r} without storage",
                advice="Add --storage 20Gi, or leave --storage-class away.",
            )
        return self

    @model_validator(mode="after")
    def _have_some_of_everything(self) -> Self:
        if not (_CPU.fullmatch(self.cpu) and re.search("[1-9]", self.cpu)):
            raise RefusalError(
                "cpu must be a number of cores above 0.",
                received=repr(self.cpu),
                advice="Examples: 4, 0.5, 500m.",
            )
        for what, size in (("memory", self.memory), ("storage", self.storage)):
            if what == "storage" and not size:
                continue
            if not (_BYTES.fullmatch(size) and re.search("[1-9]", size)):
                raise RefusalError(  # without a unit Kubernetes would take it for bytes
                    f"{what} must be a size above 0 with its unit.",
                    received=repr(size),
                    advice="Examples: 8Gi, 500Mi.",
                )
        return self


def spec_config_map(name: str) -> str:
    """The ConfigMap in which the spec of a run travels."""
    return f"{name}-spec"


def labels(name: str = "", role: str = "") -> dict[str, str]:
    """The labels that Kubernetes recommends, those with a value."""
    values = {"name": "ringside", "instance": name, "component": role}
    return {f"app.kubernetes.io/{key}": value for key, value in values.items() if value}


def template(pods: Pods, role: str, container: Manifest, *, restart: str = "") -> Manifest:
    """A pod's template, as the Pod Security Standard `restricted` allows it.

    Args:
        pods: of the run, with its name.
        role: `launcher` only starts others; `chief` and `ps` have no replica; all other roles have.
        container: the fields that differ between roles.
        restart: its restart policy; empty: another field sets it, as in an MPIJob.
    """
    launches = role == "launcher"
    resources = LAUNCHER_RESOURCES if launches else {"cpu": pods.cpu, "memory": pods.memory}
    if pods.gpus and role not in ("launcher", "chief", "ps"):
        resources = {**resources, "nvidia.com/gpu": str(pods.gpus)}
    # With a proxy in the pod the Job would never end, and ssh could not connect.
    tags = {**labels(pods.name, role), "sidecar.istio.io/inject": "false"}
    spec: Manifest = {
        **({"restartPolicy": restart} if restart else {}),
        "terminationGracePeriodSeconds": SAVE_S,
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER_ID,
            "runAsGroup": USER_ID,
            "fsGroup": USER_ID,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": role,
                "image": pods.image,
                "workingDir": ROOT,
                **container,
                "resources": {"requests": resources, "limits": resources},
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                },
                **({} if launches else {"volumeMounts": _mounts()}),
            }
        ],
        **({} if launches else {"volumes": _volumes(pods)}),
    }
    return {"metadata": {"labels": tags}, "spec": spec}


def _volumes(pods: Pods) -> list[Manifest]:
    return [
        {"name": "spec", "configMap": {"name": spec_config_map(pods.name)}},
        {"name": "claim", "persistentVolumeClaim": {"claimName": pods.claim}},
        # Without it /dev/shm has 64 MiB. Its contents count as memory of the pod.
        {"name": "memory", "emptyDir": {"medium": "Memory"}},
    ]


def _mounts() -> list[Manifest]:
    return [
        {"name": "spec", "mountPath": SPEC_FOLDER, "readOnly": True},
        {"name": "claim", "mountPath": CLAIM_FOLDER},
        {"name": "memory", "mountPath": "/dev/shm"},
    ]
