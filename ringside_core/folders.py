"""Folders that outlive a command."""

from pathlib import Path

import platformdirs


def cache_dir() -> Path:
    """Where Ringside keeps what it can make again: below XDG_CACHE_HOME, else below ~/.cache.

    Raises:
        OSError: this user has no home.
    """
    try:
        return platformdirs.user_cache_path("ringside")
    except RuntimeError as error:
        words = f"Ringside has no folder for what it keeps: {error}. Set HOME or XDG_CACHE_HOME."
        raise OSError(words) from None


def default_data_dir() -> Path:
    """Where Ringside keeps data sets without `--data-dir`."""
    return cache_dir() / "data"
