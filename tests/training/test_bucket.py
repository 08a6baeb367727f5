"""The example that reads a bucket, from a real S3 server on loopback."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from launch.site import Site
from ringside.certificates.certify import certify
from tests.verify.arms import GLOO, subject
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "input" / "bucket.py"
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]


@contextmanager
def bucket() -> Iterator[None]:
    """moto's server, and what its clients read of it in the environment."""
    (port,) = Site.here().free_ports(1)
    words = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            wait_until(
                lambda: any(
                    c.status == "LISTEN" and c.laddr.port == port
                    for c in psutil.Process(server.pid).net_connections()
                )
            )
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
                patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
                patch.setenv("AWS_ACCESS_KEY_ID", "any")
                patch.setenv("AWS_SECRET_ACCESS_KEY", "any")
                yield
        finally:
            server.terminate()


def test_a_bucket_is_certified(tmp_path: Path) -> None:
    """Under Horovod, two ranks read what plain Keras reads; a change of the reading, too."""
    with bucket():
        subprocess.run([sys.executable, EXAMPLE, "--fill"], check=True, cwd=ROOT, env=os.environ)
        arms = [
            subject("horovod", 2, GLOO, workload=str(EXAMPLE), global_batch=32),
            subject("serial", 1, workload=str(EXAMPLE), global_batch=32, input="parallel_map"),
        ]
        for found in certify(arms, folder=tmp_path, steps=4):
            assert found.passed, found.reason
