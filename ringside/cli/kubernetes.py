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
    namespace: Annotated[str, typer.Option(help="Default: that of kubectl's context.")] = "",
    replicas_per_pod: Annotated[
        int, typer.Option(min=1, help="Horovod: ranks that share a pod.")
    ] = 1,
    cpu: Annotated[str, typer.Option(help="Cores of a pod, such as 4 or 500m.")] = "4",
    memory: Annotated[str, typer.Option(help="Memory of a pod, such as 8Gi.")] = "8Gi",
    gpus: Annotated[int, typer.Option(min=0, help="GPUs of a pod with replicas.")] = 0,
    claim: Annotated[
        str, typer.Option(help="PersistentVolumeClaim (ReadWriteMany) for data and results.")
    ] = "ringside",
    storage: Annotated[
        str, typer.Option(help="Make that claim, of this size. Default: it is there already.")
    ] = "",
    storage_class: Annotated[str, typer.Option(help="Of a claim that is made.")] = "",
    time_limit: Annotated[
        int, typer.Option(min=1, help="Seconds after which a run is ended, however it stands.")
    ] = 86_400,
) -> None:
    """Print the manifests of one run, for `kubectl apply -f -`.

    Horovod: an MPIJob of Kubeflow (kubeflow.org/v2beta1). MultiWorkerMirrored and ParameterServer:
    Indexed Jobs and a headless Service. All others: one Job.
    """
    launcher = LAUNCHERS["kubernetes"](
        image=image,
        name=name,
        namespace=namespace,
        replicas_per_pod=replicas_per_pod,
        cpu=cpu,
        memory=memory,
        gpus=gpus,
        claim=claim,
        storage=storage,
        storage_class=storage_class,
        time_limit_s=time_limit,
    )
    print(make_plan(spec, run_dir=Path(), launcher=launcher).render(), end="")
