"""Horovod's published scaling at 128 and 512 GPUs beside a model on paper: no run is needed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ringside.report.blocks import Block, Cell, Column, Heading, Section, Table, Text
from ringside_core.text import number

PARAMETER_BYTES = 4  # float32
BATCH = 64  # of each GPU, as in Horovod's docs/benchmarks.rst and on TensorFlow's page
LINK_BITS_PER_S = 25e9  # of each server, docs/benchmarks.rst
PER_HOST = 4
FUSION_BYTES = 64 * 2**20  # Horovod's default of HOROVOD_FUSION_THRESHOLD
# NCCL's own figures for one step of a ring with its protocol Simple (src/graph/tuning.cc, hwLat).
NETWORK_STEP_S = 14.0e-6
PCI_STEP_S = 5.7e-6
BACKWARD = 2 / 3  # of a step: it multiplies twice as often as the forward pass
RESNET_50, RESNET_152 = (3.8, 219.0), (11.3, 91.8)  # 10⁹ multiply-adds; images/s of one P100
RESNET_101_OPERATIONS = 7.6

SOURCES = (
    "Efficiencies, 128 servers × 4 Pascal GPUs, 25 Gbit/s, batch 64: Horovod, docs/benchmarks.rst; "
    "those at 128 GPUs (32 servers): README of Horovod's first releases, 2017.",
    "Images/s of one P100, batch 64, synthetic data: TensorFlow, docs_src/performance/"
    "benchmarks.md, 2017 (142, 219, 91.8, 154 for Inception V3, ResNet-50, ResNet-152, VGG-16).",
    "ResNet-101 is not on that page: time per image is drawn straight between ResNet-50 and "
    "ResNet-152 by their operations (He et al. 2015, table 1: 3.8, 7.6, 11.3 · 10⁹).",
    "Parameters: Keras Applications.",
)
ASSUMPTIONS = (
    "Gradients are float32 and go through one ring over all GPUs; each server's link carries "
    "2(N−1)/N of them, once in each direction, at all of its 25 Gbit/s.",
    "Each 64 MiB of gradients (Horovod's fusion buffer) goes round the ring once: 2(H−1) steps "
    "of 14 µs between H servers, and the other 2(N−1) − 2(H−1) steps of 5.7 µs within servers "
    "(NCCL's own figures).",
    "Gradients become ready during the backward pass, which is two thirds of a step. At best all "
    "of it hides communication, at worst nothing does. The guess is the middle of the two times.",
    "All GPUs are equally fast, nobody waits for input, and nobody else uses the network.",
)


@dataclass(frozen=True)
class Network:
    """A model of the published benchmark.

    Attributes:
        images_s: of one GPU alone.
        published: efficiency by number of GPUs.
    """

    name: str
    parameters: int
    images_s: float
    published: dict[int, float]


@dataclass(frozen=True)
class OnPaper:
    """One model at one size; efficiencies are those of weak scaling.

    Attributes:
        reduce_s: the all-reduce of all gradients by itself.
        without, middle, whole: efficiency if nothing is hidden, the guess, and the efficiency if
            the whole backward pass hides communication.
    """

    network: Network
    gpus: int
    compute_s: float
    reduce_s: float
    without: float
    middle: float
    whole: float


def resnet_101_images_s() -> float:
    """Between ResNet-50 and ResNet-152: linear in seconds per image over operations."""
    (few, fast), (many, slow) = RESNET_50, RESNET_152
    along = (RESNET_101_OPERATIONS - few) / (many - few)
    return 1 / ((1 - along) / fast + along / slow)


NETWORKS = (
    Network("Inception V3", 23_851_784, 142.0, {128: 0.90, 512: 0.90}),
    Network("ResNet-101", 44_707_176, resnet_101_images_s(), {128: 0.90, 512: 0.90}),
    Network("VGG-16", 138_357_544, 154.0, {128: 0.79, 512: 0.68}),
)


def ring_s(size_bytes: int, gpus: int) -> float:
    """Seconds of the ring: its bytes on the slowest link, and one round of steps per buffer."""
    hosts = max(1, gpus // PER_HOST)
    between = 2 * (hosts - 1)
    steps = between * NETWORK_STEP_S + (2 * (gpus - 1) - between) * PCI_STEP_S
    moved = 2 * (gpus - 1) / gpus * size_bytes * 8 / LINK_BITS_PER_S
    return moved + math.ceil(size_bytes / FUSION_BYTES) * steps


def on_paper(network: Network, gpus: int) -> OnPaper:
    """Efficiency = C ÷ (C + X); X lies between all of the ring's time and what is not hidden."""
    compute = BATCH / network.images_s
    ring = ring_s(network.parameters * PARAMETER_BYTES, gpus)
    left = max(0.0, ring - BACKWARD * compute)
    whole, middle, without = (compute / (compute + x) for x in (left, (left + ring) / 2, ring))
    return OnPaper(network, gpus, compute, ring, without, middle, whole)


def published() -> tuple[OnPaper, ...]:
    """Every model at every published size."""
    return tuple(on_paper(network, gpus) for network in NETWORKS for gpus in network.published)


def published_section(found: Sequence[OnPaper]) -> Section:
    """Horovod's published scaling beside the scaling of the model."""
    columns = (
        Column("Model", numeric=False),
        Column("GPUs"),
        Column("Gradients", "MB"),
        Column("One GPU", "images/s"),
        Column("Step alone", "ms"),
        Column("All-reduce", "ms"),
        Column("Efficiency", "[nothing hidden, all that can be]"),
        Column("Published"),
        Column("Off by", "points"),
    )
    rows = tuple(
        (
            Cell(one.network.name),
            Cell(f"{one.gpus:,}"),
            Cell(number(one.network.parameters * 4 / 1e6)),
            Cell(number(one.network.images_s)),
            Cell(number(1e3 * one.compute_s)),
            Cell(number(1e3 * one.reduce_s)),
            Cell(f"{100 * one.middle:.0f} %", f"[{100 * one.without:.0f}, {100 * one.whole:.0f}]"),
            Cell(f"{100 * one.network.published[one.gpus]:.0f} %"),
            Cell(f"{100 * (one.middle - one.network.published[one.gpus]):+.0f}"),
        )
        for one in found
    )
    inside = sum(one.without <= one.network.published[one.gpus] <= one.whole for one in found)
    answer = (
        f"{inside} of {len(found)} published efficiencies lie between the two limits. Batch "
        f"{BATCH} for each GPU, weak scaling."
    )
    blocks: tuple[Block, ...] = (
        Table(columns, rows, label="Horovod's published scaling, on paper"),
        Heading("Assumptions"),
        *map(Text, ASSUMPTIONS),
        Heading("Sources"),
        *map(Text, SOURCES),
    )
    return Section("published", "Horovod's published scaling, on paper", "Paper", answer, blocks)
