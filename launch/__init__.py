"""Turn a spec into processes: plans first, then one module that runs them. No TensorFlow."""

from launch.execute import Execution, execute
from launch.launchers import LAUNCHERS, LauncherName, make_plan
from launch.placement import Placement
from launch.plan import Plan, Process
from launch.site import Site
from launch.watch import Progress

__all__ = [
    "LAUNCHERS",
    "Execution",
    "LauncherName",
    "Placement",
    "Plan",
    "Process",
    "Progress",
    "Site",
    "execute",
    "make_plan",
]
