"""The nouns that every room shares. Nothing here imports TensorFlow."""

from ringside_core.specs.arm import Arm, Settings
from ringside_core.specs.backends import (
    BACKENDS,
    CEILING,
    REFERENCE,
    Capabilities,
    backend_options,
    backend_row,
    capabilities_of,
)
from ringside_core.specs.certificate import ByDesign, Certificate, Check, Deviation
from ringside_core.specs.cluster import Cluster, ClusterTask, parse_tf_config
from ringside_core.specs.communication import Communication, Link, StackTimings, Timing
from ringside_core.specs.comparison import (
    Asked,
    Circumstances,
    Comparison,
    Division,
    NotRun,
    Scaling,
    Shared,
    Trial,
)
from ringside_core.specs.errors import PreemptedError, RefusalError, unknown_name
from ringside_core.specs.files import (
    is_full,
    remove_halves,
    whole_file,
    write_all_whole,
    write_whole,
)
from ringside_core.specs.hostfile import Host, assign_slots, parse_hostfile, read_hostfile
from ringside_core.specs.load import Load, MachineCounts
from ringside_core.specs.noun import Document, Noun
from ringside_core.specs.options import BackendOptions, HorovodOptions, parse_option
from ringside_core.specs.placement import THIS_MACHINE, Placement
from ringside_core.specs.record import (
    Block,
    EpochRecord,
    Execution,
    LedgerDigest,
    MachineFacts,
    Outcome,
    RecordInProgress,
    Run,
    RunRecord,
)
from ringside_core.specs.run_spec import AUTO, LearningRateRule, Resources, RunSpec
from ringside_core.specs.surroundings import Surroundings, read_surroundings
from ringside_core.specs.topology import Topology
