"""Under which runs are started, beside the machine: the same for all rounds of a comparison."""

import hashlib
import os
from pathlib import Path

from ringside.verify import store
from ringside_core.specs import Circumstances, RefusalError, RunSpec


def circumstances(base: RunSpec) -> Circumstances:
    """Those of this process, for runs of `base`."""
    orders = store.orders()
    told = "\n".join(f"{name}={value}" for name, value in orders.items())
    return Circumstances(
        cores=tuple(sorted(os.sched_getaffinity(0))),
        variables=tuple(orders),
        variables_sha256=hashlib.sha256(told.encode(errors="surrogateescape")).hexdigest(),
        folder=os.getcwd() if _names_relative_files(base) else "",
    )


def _names_relative_files(base: RunSpec) -> bool:
    """Whether a file is looked for from the working directory."""
    code = [base.workload, base.pipeline.filter or ""]
    if any(".py:" in name and not Path(name).is_absolute() for name in code):
        return True
    return base.data_dir is not None and not Path(base.data_dir).is_absolute()


def refuse_other_circumstances(before: Circumstances, now: Circumstances) -> None:
    """Refuse to mix rounds that were made under two sets of circumstances; both are told."""
    variables = "A comparison goes on with the environment variables with which it began."
    rule, received = "", ""
    if before.cores != now.cores:
        rule = "A comparison goes on with the cores with which it began."
        found, was = (", ".join(map(str, one.cores)) for one in (now, before))
        received = f"{found}, and it was {was}"
    elif before.variables != now.variables:
        rule = variables
        were, are = set(before.variables), set(now.variables)
        told = [f"{name} is set, and was not" for name in sorted(are - were)]
        told += [f"{name} was set, and is not" for name in sorted(were - are)]
        received = "; ".join(told)
    elif before.variables_sha256 != now.variables_sha256:
        rule = variables
        found, was = (one.variables_sha256[:12] for one in (now, before))
        received = f"{', '.join(now.variables)} with values of SHA-256 {found}, and it was {was}"
    elif before.folder != now.folder:
        rule = "A comparison of relative file names goes on in the folder where it was typed."
        received = f"{now.folder or 'nowhere'}, and it was {before.folder or 'nowhere'}"
    if rule:
        raise RefusalError(
            rule, received=received, advice="Make it so again, or start a new comparison."
        )
