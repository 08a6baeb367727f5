"""`ringside kubernetes`."""

from pathlib import Path
from typing import Annotated

import typer

from launch import LAUNCHERS, make_plan
from launch.flags import spec_flags, with_flags
from ringside_core.specs import RunSpec


# Without --cores-per-replica: all pods on one node would pin themselves to the same first cores of
# the node. --cpu gives each pod cores of its own.
@with_flags(spec=spec_flags(without=("cores_per_replica",)))
def command(
    *,
    spec: RunSpec,
    image: Annotated[str, typer.Option(help="Made from Containerfile, where nodes can pull it.")],
    name: Annotated[str, typer.Option(help="Of the run. Default: from the spec.")] = "",
    claim: Annotated[
        str, typer.Option(help="PersistentVolumeClaim (ReadWriteMany) for data and results.")
    ] = "ringside",
    cpu: Annotated[str, typer.Option(help="Cores of a pod, such as 4 or 500m.")] = "4",
    memory: Annotated[str, typer.Option(help="Memory of a pod, such as 8Gi.")] = "8Gi",
    gpus: Annotated[int, typer.Option(min=0, help="GPUs of a pod with replicas.")] = 0,
) -> None:
    """Print the manifests of one run, for `kubectl apply -f -`.

    Horovod: an MPIJob of Kubeflow. MultiWorkerMirrored and ParameterServer: a TFJob. Others: a Job.

    Example: ringside kubernetes --backend horovod --replicas 4 --image my/image
    """
    launcher = LAUNCHERS["kubernetes"](
        image=image, name=name, claim=claim, cpu=cpu, memory=memory, gpus=gpus
    )
    print(make_plan(spec, run_dir=Path(), launcher=launcher).render(), end="")
