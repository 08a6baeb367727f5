"""How each number is defined; printed in every report, so that none has to be guessed."""

from ringside.report.blocks import Section, Terms

DEFINITIONS: tuple[tuple[str, str], ...] = (
    (
        "run, round, arm",
        "A run is one execution of an arm in fresh processes. A round is one pass over all arms in "
        "an order that is drawn. What is repeated, and counted as n, is the run, never the step. "
        "Runs that did not complete give no number and are listed.",
    ),
    (
        "examples/s",
        "Examples really trained ÷ time of the slowest process, after warm-up: Σ examples ÷ Σ max "
        "over processes of the seconds from the barrier before the epoch's first step to the end "
        "of the process's last one. Validation and start-up are not in it. Of an arm: the "
        "geometric mean over the rounds that count.",
    ),
    (
        "warm-up",
        "Steps that are recorded and left out: whole epochs, at least the first (it holds tracing "
        "and compilation), and as many more as the step times of the run take to settle.",
    ),
    (
        "[low, high], 95 % interval",
        "A confidence interval over rounds. Made so, an interval covers the true value in 95 of "
        "100 experiments. Of rates and ratios it is computed on logarithms. With fewer than 3 "
        "rounds there is none (4 if only two arms ran), and the cell says so.",
    ),
    (
        "median [lowest–highest] n",
        "Over the completed runs of an arm in the rounds that count. A range, not an interval. "
        "n=2 of 3: one completed run has no such figure.",
    ),
    (
        "ratio, as fast as",
        "Throughput of the first arm ÷ throughput of the second, from the rounds in which both "
        "ran. 1.31× means 31 % more examples in the same time. Less one linear drift of the "
        "machine over the order of the runs, estimated from all arms; so it is not exactly the "
        "quotient of the two means.",
    ),
    (
        "faster, slower, cannot tell",
        "Faster or slower only if the difference would come by chance in fewer than 5 of 100 such "
        "experiments, all pairs together: p-values are adjusted by Holm's method. The interval "
        "shown is that of the pair alone, so it may leave out 1 where the word is cannot tell.",
    ),
    (
        "p, p adjusted",
        "How often two equally fast arms would differ at least so much; adjusted: for the number "
        "of pairs that are judged.",
    ),
    (
        "sure to be seen",
        "The relative difference that an experiment with this noise and so many rounds would have "
        "called in 4 of 5 cases, by the strictest step of Holm's method; smaller ones may be seen "
        "with luck.",
    ),
    (
        "noise floor",
        "The same arm measured twice in every round under two names, and judged like any pair. "
        "It must come out as cannot tell; a false alarm is to be expected once in 20 experiments.",
    ),
    (
        "disturbed round",
        "A round with a run during which other programs, or the host, took more than 10 % of its "
        "cores. It is left out as long as enough quiet rounds are left.",
    ),
    (
        "width of an interval of interest",
        "(high − low) ÷ ratio, for pairs of one size, for each arm against serial, and for each "
        "arm measured twice; not before seven rounds. Rounds go on until the widest is narrower "
        "than the precision that was asked for.",
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
        "scaling efficiency",
        "X(N) ÷ (N · X(base)), X being examples/s at N replicas, from the ratio above. Strong: the "
        "global batch is the same at every size. Weak: the batch of each replica is. The base is "
        "named beside each number: the same arm at one replica, and the serial run, which has no "
        "distribution at all.",
    ),
    (
        "step time, p50, p95, p99",
        "Milliseconds. Time from the end of one step to the end of the next, for each step the "
        "largest over the processes; quantiles over all steps after warm-up: so many percent took "
        "at most so long. For an asynchronous arm a step is one worker's batch, and its time is "
        "that between two completions as the coordinator learns of them.",
    ),
    (
        "rank skew",
        "Milliseconds. For each step the longest less the shortest time over the processes, the "
        "median over the steps.",
    ),
    (
        "Ringside's clock",
        "What its own callbacks (clock, counting) take for a step, as measured in the process "
        "after the training, ÷ the step time.",
    ),
    (
        "parts of a step",
        "Milliseconds for one global batch, from paired rounds. Each part is the time of the arm "
        "less its time with something left out, as said below the table; the remainder is the "
        "whole less all parts: replicas that slow each other, and parts that overlap. The parts "
        "add up if the interval of the remainder covers 0.",
    ),
    (
        "time of a collective",
        "From a barrier to the return of the operation. Of each rank the median over repetitions; "
        "then mean [least–most] over the ranks. Repetitions: how often each rank did it.",
    ),
    (
        "wrong elements",
        "Elements of the results that are not what the closed form says, over all ranks and "
        "repetitions.",
    ),
    (
        "algorithm and bus bandwidth",
        "Size ÷ time, GB/s (1e9 bytes); for an all-reduce, bus bandwidth is that × 2(n−1)/n, as "
        "nccl-tests defines it.",
    ),
    (
        "α, β, γ, error of the model",
        "Latency of a message, seconds per byte on a link, and seconds to add a byte (measured "
        "apart), fitted to the times at all sizes. Error: |model − measured| ÷ measured, median "
        "over the sizes and largest.",
    ),
    (
        "gradients, predicted, counted, exposed",
        "Gradients: bytes of one gradient of all trainable weights. Predicted bytes: 2(n−1)/n × "
        "gradients for each of n ranks (ring all-reduce), or 2 × gradients for each worker (push "
        "and pull). Predicted ms, in one piece: what the fitted model says of one operation on all "
        "gradients at once; a stack may cut them up and send while it computes. Counted: what the "
        "interfaces of all hosts sent after warm-up ÷ steps, loopback and other programs "
        "included. Exposed: step time with reduction less step time without.",
    ),
    (
        "time to target",
        "Seconds from the start of the chief process to the end of the first epoch whose "
        "validation metric is at least the target. It includes start-up and validation.",
    ),
    (
        "time to accuracy",
        "Time to target over seeds, one for each round, by MLPerf's rule: at least 5 runs, all of "
        "which reach the target; the fastest and the slowest are left out, and the mean of the "
        "rest is taken. The rule gives no interval. Seeds: how many different ones. Epochs to "
        "target: mean over the same runs, whole ones. Too fast: fewer epochs than the serial run "
        "beyond chance, though both compute the same.",
    ),
    (
        "paid once",
        "Seconds. Time to accuracy less epochs × seconds for an epoch (training and validation, "
        "mean after warm-up): start of the process, tracing, compilation, first validation.",
    ),
    ("final metric", "The target's metric on held-out data after the last epoch."),
    ("start-up", "Seconds from the start of a process to the end of its first step; the slowest."),
    (
        "peak memory",
        "Σ over all processes of the highest resident set size of each, GiB (2³⁰ bytes); parameter "
        "servers and coordinator are charged. Pages that processes share count in each.",
    ),
    (
        "cores in use, shared cores, threads",
        "Cores in use: different processors that the arm's processes may run on, over all hosts. "
        "Shared cores: why processes have to share them. Threads: of TensorFlow's pools; intra-op "
        "within one operation, inter-op between operations.",
    ),
    (
        "wall time",
        "Seconds of a whole run, from the start of its processes to the end of the last.",
    ),
    (
        "CPU s / 1000 examples",
        "User and system time of all processes ÷ examples of all epochs × 1000. It includes "
        "start-up, import and validation, so it falls when training is longer.",
    ),
    (
        "trial, tuned",
        "Before the rounds each arm gets the same number of trials, one run each, over its own "
        "settings; the fastest becomes a tuned arm, which is certified and measured like any "
        "other. The numbers of the trials themselves are single runs.",
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
    (
        "digest of the raw samples",
        "SHA-256 of results.json, which holds every sample. `ringside verify-report` compares it, "
        "and computes every number again.",
    ),
    (
        "code of this report",
        "Digest of the code and of the versions of the packages that computed and drew it. "
        "`ringside verify-report` refuses a report of other code: what differs may be the code.",
    ),
)


def definitions_section() -> Section:
    """All definitions."""
    return Section(
        "definitions",
        "How is each number defined?",
        "Definitions",
        "Every number of this report, with its formula.",
        (Terms(DEFINITIONS),),
    )
