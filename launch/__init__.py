"""Turn a spec into processes: plans first, then one module that runs them. No TensorFlow."""

from launch.execute import execute
from launch.launchers import LAUNCHERS, LauncherName, make_plan
from launch.plan import Plan, Process
from launch.site import Site
from launch.watch import Progress
