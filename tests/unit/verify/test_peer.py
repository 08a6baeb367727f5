"""The arm of the other family that an arm whose rows are coupled is held against."""

from ringside.certificates.certify import peer_of
from tests.unit.stats.factory import spec_of


def test_the_peer_of_a_slowed_arm_is_not_slowed() -> None:
    """Its replicas may be in one process."""
    peer = peer_of(spec_of("horovod", 2, slow_worker=0.33))

    assert (peer.backend, peer.topology.num_replicas, peer.slow_worker) == ("mirrored", 2, None)
