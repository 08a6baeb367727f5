"""A second opinion on the numbers of a report: from the raw samples, without `measure`."""

import hashlib

from specs import Comparison


def samples_digest(comparison: Comparison) -> str:
    """SHA-256 of the comparison as results.json holds it, 64 hexadecimal digits."""
    return hashlib.sha256(comparison.to_json().encode()).hexdigest()
