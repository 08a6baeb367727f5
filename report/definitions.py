"""How each number is defined; printed in every report, so that none has to be guessed."""

NO_INTERVALS = (
    "This version states medians and ranges. A range is the lowest and the highest run, not a "
    "confidence interval, so a difference that lies within the ranges means nothing."
)

DEFINITIONS: tuple[tuple[str, str], ...] = (
    (
        "median [lowest–highest] n",
        "Over the completed runs of an arm; a run is one execution in fresh processes. Runs that "
        "did not complete give no number and are listed. n=2 of 3: one completed run has no such "
        "figure.",
    ),
    (
        "examples/s",
        "Examples really trained ÷ time of the slowest process, over all epochs but the first: "
        "Σ examples ÷ Σ max over processes of the seconds between the barrier before the epoch's "
        "first step and the barrier after its last. The first epoch holds tracing and compilation: "
        "it is recorded and left out. Validation and start-up are not in it.",
    ),
    (
        "certified, comparable",
        "Before anything is timed, each arm trains beside the serial run, on the same global "
        "batches. exact: all weights, losses, metrics and predictions are equal to those of the "
        "serial run within rounding. statistical: asynchronous with several workers, by counting "
        "and by convergence. A deviation is the largest |arm - serial| of an array ÷ the largest "
        "|serial| of all arrays of its kind. An arm is comparable if it has such a certificate for "
        "the very run that was timed, on that machine, with those packages and data; others are "
        "shown apart and never ranked.",
    ),
    (
        "strong scaling efficiency",
        "X(N) ÷ (N · X(base)), X being the median of examples/s at N replicas. The global batch is "
        "the same in all arms, so this is strong scaling: each replica gets a smaller batch. The "
        "base is named beside each number: the same arm at one replica, and the serial run, which "
        "has no distribution at all.",
    ),
    (
        "step time",
        "Milliseconds. Time from the end of one step to the end of the next, for each step the "
        "largest over the processes; the median over all steps of all epochs but the first. For an "
        "asynchronous arm a step is one worker's batch, and its time is that between two "
        "completions as the coordinator learns of them.",
    ),
    (
        "time to target",
        "Seconds from the start of the chief process to the end of the first epoch whose "
        "validation metric is at least the target. It includes start-up and validation.",
    ),
    ("final metric", "The target's metric on held-out data after the last epoch."),
    ("start-up", "Seconds from the start of a process to the end of its first step; the slowest."),
    (
        "peak memory",
        "Σ over all processes of the highest resident set size of each, GiB (2³⁰ bytes); parameter "
        "servers and coordinator are charged. Pages that processes share count in each.",
    ),
    (
        "CPU s / 1000 examples",
        "User and system time of all processes ÷ examples of all epochs × 1000. It includes "
        "start-up, import and validation, so it falls when training is longer.",
    ),
    (
        "each example once",
        "yes: in every epoch of every completed run the ids 0…n−1 were fed once each (count, sum "
        "and 64-bit hash), and no other run was fed more. no: some were left out or fed twice. "
        "unknown: no ledger was kept.",
    ),
    (
        "replicas equal",
        "Whether all replicas of a synchronous run end with the same trainable weights to the last "
        "bit, as compared by the run itself. A difference of more than 1/1000 of what a weight has "
        "moved ends the run as failed.",
    ),
)
