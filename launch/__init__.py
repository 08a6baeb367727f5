"""Turn a spec into processes: plans first, then one module that runs them. No TensorFlow."""

from launch.execute import Execution, execute
from launch.placement import Placement
from launch.plan import Plan, Process
from launch.planner import LauncherName, make_plan
from launch.site import Site
from launch.watch import Progress

__all__ = [
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
