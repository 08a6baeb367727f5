"""The nouns that every room shares. Nothing here imports TensorFlow."""

from specs.arm import Arm, Settings
from specs.capabilities import CAPABILITIES, Capabilities, capabilities_of
from specs.certificate import (
    ByDesign,
    Certificate,
    Check,
    Control,
    ControlResult,
    DetectionMatrix,
    Deviation,
)
from specs.cluster import Cluster, ClusterTask, parse_tf_config
from specs.communication import Communication, Link, StackTimings, Timing
from specs.comparison import Circumstances, Comparison, Load, NotRun, Rounds, Run, Trial
from specs.errors import RefusalError, unknown_name
from specs.hostfile import Host, assign_slots, parse_hostfile, read_hostfile
from specs.noun import Document, Noun
from specs.options import BackendOptions, HorovodOptions, backend_options, parse_option
from specs.record import (
    EpochRecord,
    LedgerDigest,
    MachineFacts,
    Outcome,
    RunRecord,
    whole_file,
    write_all_whole,
    write_whole,
)
from specs.run_spec import LearningRateRule, PipelineOptions, Resources, RunSpec
from specs.surroundings import Surroundings, read_surroundings
from specs.topology import BatchPlan, InputShard, Topology

__all__ = [
    "CAPABILITIES",
    "Arm",
    "BackendOptions",
    "BatchPlan",
    "ByDesign",
    "Capabilities",
    "Certificate",
    "Check",
    "Circumstances",
    "Cluster",
    "ClusterTask",
    "Communication",
    "Comparison",
    "Control",
    "ControlResult",
    "DetectionMatrix",
    "Deviation",
    "Document",
    "EpochRecord",
    "HorovodOptions",
    "Host",
    "InputShard",
    "LearningRateRule",
    "LedgerDigest",
    "Link",
    "Load",
    "MachineFacts",
    "NotRun",
    "Noun",
    "Outcome",
    "PipelineOptions",
    "RefusalError",
    "Resources",
    "Rounds",
    "Run",
    "RunRecord",
    "RunSpec",
    "Settings",
    "StackTimings",
    "Surroundings",
    "Timing",
    "Topology",
    "Trial",
    "assign_slots",
    "backend_options",
    "capabilities_of",
    "parse_hostfile",
    "parse_option",
    "parse_tf_config",
    "read_hostfile",
    "read_surroundings",
    "unknown_name",
    "whole_file",
    "write_all_whole",
    "write_whole",
]
