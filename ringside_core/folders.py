"""Folders that outlive a command."""

from pathlib import Path

import platformdirs


def cache_dir() -> Path:
    """Where Ringside keeps what it can make again: below XDG_CACHE_HOME, else below ~/.cache."""
    return platformdirs.user_cache_path("ringside")


def default_data_dir() -> Path:
    """Where Ringside keeps data sets without `--data-dir`."""
    return cache_dir() / "data"
