"""Data sets of TensorFlow Datasets, prepared on first use."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow_datasets as tfds
from filelock import FileLock
from tensorflow_datasets.core.download import downloader

from ringside_core.folders import default_data_dir
from ringside_core.specs import RefusalError


def generated(builder_class: Callable[..., Any], data_dir: str | None) -> Any:
    """The builder of a data set that is generated here, prepared.

    Args:
        builder_class: makes it.
        data_dir: where data sets are kept; None: in the user's cache.
    """
    root = data_dir or str(default_data_dir())
    builder = builder_class(data_dir=root)
    if not builder.is_prepared():
        # The ranks of a host start together: the first one prepares the data, the others wait.
        with FileLock(_writable(root) / f".{builder.name}.lock", fallback_to_soft=False):
            builder = builder_class(data_dir=root)  # another process may have been faster
            tfds.disable_progress_bar()  # it takes a second, and only one rank would print
            builder.download_and_prepare()
    return builder


def public(name: str, data_dir: str | None) -> Any:
    """The builder of a public data set, downloaded on first use where there is a network.

    Args:
        name: of the data set, as TFDS names it.
        data_dir: where data sets are kept, local or gs://; None: in the user's cache.

    Raises:
        RefusalError: it is not prepared and cannot be downloaded; says what to fetch, and where to.
    """
    root = data_dir or str(default_data_dir())
    builder = tfds.builder(name, data_dir=root)
    if not builder.is_prepared():
        try:
            if "://" in root:
                raise OSError("data sets are not written to a remote directory from here")
            with FileLock(_writable(root) / f".{name}.lock", fallback_to_soft=False):
                builder = tfds.builder(name, data_dir=root)
                tfds.disable_progress_bar()
                # Ten retries with doubling pauses take 3.5 minutes on a machine without a network.
                downloader.MAX_RETRIES = 2
                builder.download_and_prepare()
        except RefusalError:
            raise
        except Exception as error:  # TFDS raises whatever its HTTP library does
            version = f"{builder.name}/{builder.version}"
            raise RefusalError(
                f"The data set {version} must be prepared, or be downloadable.",
                received=f"{type(error).__name__}: {str(error).splitlines()[0][:160]}",
                advice='On a machine with a network run: python -c "import tensorflow_datasets '
                f"as tfds; tfds.builder('{name}', data_dir='DIR').download_and_prepare()\" "
                f"and copy DIR/{version} to {root}/{version}, or name the directory "
                "that holds it with --data-dir.",
            ) from None
    return builder


def _writable(folder: str) -> Path:
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
        trial = path / f".writable-{id(path)}"
        trial.touch()
        trial.unlink()
    except OSError as error:
        raise RefusalError(
            "The data directory must be writable.",
            received=str(error),
            advice="Choose another with --data-dir.",
        ) from None
    return path
