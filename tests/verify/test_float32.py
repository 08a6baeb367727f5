"""What cannot run in float64 is certified in float32, to what rounding does and no further."""

from pathlib import Path

import numpy as np
import pytest

from ringside.certificates.certify import certify
from ringside.certificates.trial import move
from ringside_core.keras import tf
from tests.nightly import daily
from tests.verify import zoo_of_float32
from tests.verify.arms import GLOO, subject

pytestmark = pytest.mark.usefixtures("warm")
NONE: dict[str, object] = {}
MIRRORED, HOROVOD, WORKERS = ("mirrored", NONE), ("horovod", GLOO), ("multi_worker_mirrored", NONE)
ZOO = {"sampled": [MIRRORED], "rotated": [HOROVOD], "cast_in_loss": [WORKERS]}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", daily(ZOO, lambda name: name == "sampled"))
def test_it_is_certified_in_float32(name: str, tmp_path: Path) -> None:
    """Each update from the same state, and the whole; the certificate says why not in float64."""
    workload = f"{zoo_of_float32.__name__}:{name}"
    arms = [
        subject(backend, 2, dict(options), workload=workload, global_batch=12)
        for backend, options in ZOO[name]
    ]

    for certificate in certify(arms, folder=tmp_path):
        assert certificate.passed, certificate.reason
        assert "float" in certificate.not_in_float64
        assert certificate.not_in_float64 in certificate.coverage
        checks = {check.name: check for check in certificate.checks}
        assert not any(name.startswith("float64") for name in checks)
        for name_of in ("float32 parity", "float32 single updates", "as timed", "resumed"):
            assert checks[name_of].tolerance == 4e-5
        assert checks["float32 single updates"].covered


def test_each_trained_weight_is_moved() -> None:
    """Up or down, by one rounding, or by more."""
    kernel = np.random.default_rng(0).normal(size=(3, 40)).astype(np.float32)
    variable = tf.Variable(kernel)

    move([variable], 1, np.random.default_rng(0))

    signs = np.sign(variable.numpy() - kernel)
    np.testing.assert_array_equal(
        variable.numpy(), np.nextafter(kernel, np.float32(np.inf) * signs)
    )
    assert {-1.0, 1.0} == set(signs.flat)
    variable.assign(kernel)
    move([variable], 64, np.random.default_rng(0))
    np.testing.assert_array_equal(variable.numpy(), kernel + 64 * signs * np.spacing(abs(kernel)))
