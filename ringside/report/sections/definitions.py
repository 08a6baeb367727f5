"""How each number is defined. Every report prints it, so that no reader has to guess."""

from ringside.report.blocks import Section, Terms

TEXT = """\
run, launch, arm: A run is one execution of an arm in fresh processes. A launch starts every arm
that takes part once, in an order that is drawn at random. The unit that is repeated, and counted as
n, is the launch, never the step. Runs that did not complete give no number; they are listed.

screening, final, contenders: The screening starts each arm alone, which times its start, and then
all at once. It chooses the contenders of the largest size: in each family the fastest arm, and the
next if its passes do not tell the two apart. If every arm takes part in the final however fast it
is, the screening only times starts. The final has several launches of the contenders and
serial. Their numbers come from the final alone; those of other arms from the screening: "one
launch", without an interval.

examples/s: Examples that were really trained ÷ time of the slowest process, after warm-up: Σ
examples ÷ Σ max over processes of the seconds from the barrier before an epoch's first step to the
end of the process's last step; in a live launch, over the steps of blocks that count. Validation
and start-up are not included. For an arm: the geometric mean over the launches that count.

whole epochs, examples/s: The same from epoch to epoch, without validation: the time also holds what
is done between the last step of an epoch and the first of the next. The shorter the epochs, the
more it takes. Median over the launches that count.

warm-up: Steps that are recorded but left out of the numbers: those before the first block, and more
until the step times have settled. Of runs that are alone (--fresh) whole epochs, the first at
least.

[low, high], 95 % interval: A confidence interval over launches: such intervals contain the true
value in 95 of 100 experiments. For rates and ratios it is computed on logarithms. It needs at least
3 launches; with fewer the cell says that there is none.

median [lowest–highest] n: Over the completed runs of an arm in the launches that count. This is a
range, not an interval. n=2 of 3 means that one completed run does not have this number.

ratio, as fast as: Throughput of the first arm ÷ throughput of the second. 1.31× means 31 % more
examples in the same time. In a launch it is the mean of the middle half of the ratios of blocks
that ran within seconds of each other; over launches, the geometric mean. So it is not exactly the
quotient of the two columns. Its interval knows how much the pair's blocks scatter, and how much
more launches do: that is one factor, which all arms of the final share.

faster, no difference, cannot tell: The headline is asked first, at the full 5 %: if two families
are equally fast, it names one of them in at most 5 of 100 such experiments. If a family has two
contenders that it cannot tell apart, the claim is about both. No difference of more than x %: the
interval holds 1 and ends before x %, at most 10 %. Cannot tell: it is wider.

verdict: Each arm of the final against serial, adjusted together by Holm's method: if all are as
fast as serial, one of these words is wrong in at most 5 of 100 experiments. Other pairs have an
interval and no word.

noise floor: Serial is in the final twice, under two names. The interval of the two should hold 1;
one of 20 does not.

launches scatter: How much a pair's ratio scatters from launch to launch ÷ how much it would if only
its blocks scattered. About 1: starting new processes changes nothing.

disturbed launch: A launch (--fresh) in which other programs, or the host, took more than 10 % of a
run's cores. It is left out as long as enough quiet ones are left. What others use of the machine's
other cores is shown too, and leaves out none.

cost: Of an epoch, its examples ÷ examples/s × hosts × price of an hour: of the training steps,
without validation and start-up. To the target: the time to target, which holds both, × hosts ×
price.

input-bound: An arm that trains at least 80 % of the examples/s that one process read of the data
while nothing else ran. It is not known of arrays, of data that are cached or sharded, or where the
arm is faster than that.

measured steps: Seconds of blocks that count, of all arms ÷ the time from the start of the
screening.

certified, comparable: Before anything is timed, each arm trains on the same global batches as plain
Keras. exact: all weights, metrics and predictions equal those of plain Keras within rounding. in
turn: of asynchronous training with several workers, they do where each update waits for the one
before; without that, updates and rows are counted. A deviation is the largest |arm - plain| of an
array ÷ the largest |plain| of all arrays of its kind. An arm is comparable if it has such a
certificate for exactly the run that was timed, on this machine, with these packages and data. Other
arms are shown apart and never ranked.

scaling efficiency: X(N) ÷ (N · X(base)), where X is examples/s at N replicas, computed from the
ratio above. Strong: the global batch is the same at every size. Weak: the batch of each replica is
the same. The base is named beside each number: the same arm at one replica, or the serial run,
which is not distributed.

step time, p50, p95, p99: Milliseconds from the end of one step to the end of the next; for each
step, the longest over the processes. p50, p95 and p99 are quantiles over all steps after warm-up:
95 % of the steps took at most p95. For an asynchronous arm a step is one worker's batch, and its
time is the time between two completions that the coordinator sees.

of the ceiling: Throughput of the arm ÷ that of as many independent replicas (--why), which train a
model each and combine nothing: geometric mean and interval over launches. The throughput of
independent replicas is the sum of their own.

rank skew: Milliseconds. For each step, the longest minus the shortest time over the processes; of
these the median.

Ringside's clock: The time that Ringside's clock and its listeners (progress, proof) take for a
step: their median over the steps ÷ the step time. Keras' calls of callbacks are not in it.

parts of a step: Milliseconds for one global batch, from paired launches. Each part is the time of
the arm minus its time with something left out; the list below the table says what is left out. The
remainder is the whole minus all parts, such as what overlaps. The parts add up if the interval of
the remainder contains 0.

time, bus bandwidth, of the link: Time of an all-reduce: from a barrier to the return of the
operation, mean over the ranks and repetitions, with its 95 % interval over the repetitions. A rare
stall is in it. Bus bandwidth: size ÷ time × 2(n−1)/n, in GB/s (1e9 bytes), as nccl-tests defines
it. Of the link: the shortest time that the slowest link allows any all-reduce ÷ the time.

wrong: Elements of the sums that differ from the correct value, which is known in advance; over all
ranks and repetitions.

model of latency and bandwidth, median error: t(n) = 2(p−1)·α + 2(p−1)/p·n·β for n bytes among p
ranks. The latency of a message (α) and the seconds to send a byte and to add it (β) are fitted to
the times of all sizes. Error: |model − measured| ÷ measured, the median over the sizes.

gradients, sent, all-reduce, exposed: Gradients: bytes of one gradient of all trainable weights.
Sent: bytes that the interfaces of all hosts sent after warm-up ÷ steps; loopback and other programs
are included. All-reduce, in one piece: what the fitted model gives for one operation on all
gradients at once; a stack may cut them into pieces and send while it computes. Exposed: step time
with reduction minus step time without.

time to target: Seconds from the command to the end of the first epoch whose validation metric
reaches the target. Start-up, with its launcher, and validation are included.

time to accuracy: Time to target over several seeds, one for each launch, by MLPerf's rule: at least
5 runs, all of which reach the target; the fastest and the slowest are left out, and the mean of the
rest is taken. The rule gives no interval. Seeds: how many different ones. Epochs to target: whole
epochs, the mean over the same runs.

paid once: Seconds: time to accuracy minus epochs × seconds for an epoch (training and validation,
mean after warm-up). It contains the launcher, the start of the process, tracing, compilation and
the first validation.

final metric: The target's metric on held-out data after the last epoch.

start-up: Seconds from the command to the end of the first step; of the slowest process. The command
is the moment at which Ringside starts the first process of the run, such as horovodrun. A process
on another machine has another clock, so it counts from its own start.

peak memory: Sum over all processes of the highest proportional set size (PSS) of each, in GiB (2³⁰
bytes). Parameter servers and the coordinator are included. A page that k processes of the run
share, mostly code of libraries, counts 1/k in each of them.

cores in use, shared cores, threads: Cores in use: different processors on which the arm's processes
may run, over all hosts. Shared cores: why processes must share them. Threads: of TensorFlow's
thread pools; intra-op threads work within one operation, inter-op threads run several operations at
once.

wall time: Seconds of a whole run, from the start of its first process to the end of its last one.

CPU, s / 1000 examples: User and system time of all processes after start-up ÷ examples trained
after it × 1000. Validation is included.

start-up CPU: User and system time of all processes until the end of the first step, mostly for
import and tracing; of a parameter server and its workers, until they serve.

trial, tuned: Before the screening each arm gets the same number of trials, one run each, with
different settings. The fastest settings become a tuned arm, which is certified and measured like
any other. The numbers of the trials are those of single runs.

same rows: yes: in every epoch that all have made, the run was fed as many rows as most runs of its
launch, and in every eighth batch the same ones in the same order (64-bit hash; none with XLA, and
where a parallel map of the data draws). no: other rows, or in another order. one run: no other run
of the launch is there to compare. unknown: no ledger was kept.

replicas equal: Whether all replicas of a synchronous run end with trainable weights that are equal
to the last bit; the run itself compares them. If a weight differs by more than 1/1000 of what it
has moved, the run fails.

digest of the raw samples: SHA-256 of results.json, which contains every sample. `ringside
verify-report` renders every page again from it and compares them byte by byte.

code of this report: Digest of the code, and of the versions of the packages, that computed and drew
the report. `ringside verify-report` refuses a report that other code wrote, because then the code
may be the reason for a difference.
"""
# Each paragraph is a term, a colon and its meaning.
DEFINITIONS: tuple[tuple[str, str], ...] = tuple(
    (term, " ".join(meaning.split()))
    for term, _, meaning in (one.partition(": ") for one in TEXT.split("\n\n"))
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
