"""Folders that outlive a command."""

import os
from pathlib import Path


def cache_dir() -> Path:
    """Where Ringside keeps what it can make again: below XDG_CACHE_HOME, else below ~/.cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "ringside"
