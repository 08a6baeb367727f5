"""TFDS data sets as sources: Ringside's own pipeline reads the files, TFDS prepares and decodes."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow_datasets as tfds
from filelock import FileLock
from tensorflow_datasets.core.download import downloader

from ringside_core.keras import tf
from ringside_core.specs import RefusalError
from ringside_core.workloads.source import StreamSource, writable_dir


@functools.cache  # a certificate loads its workload for each case: the data are read once
def prepared_source(
    builder_class: Callable[..., Any], root: str | Path, split: str, *, num_shards: int
) -> StreamSource:
    """A split of a data set that is generated here, prepared on first use."""
    builder = builder_class(data_dir=str(root))
    if not builder.is_prepared():
        # The ranks of a host start together: the first one prepares the data, the others wait.
        with FileLock(writable_dir(Path(root)) / f".{builder.name}.lock", fallback_to_soft=False):
            builder = builder_class(data_dir=str(root))  # another process may have been faster
            tfds.disable_progress_bar()  # it takes a second, and only one rank would print
            config = tfds.download.DownloadConfig(num_shards=num_shards)
            builder.download_and_prepare(download_config=config)
    return _source(builder, split)


def public_source(name: str, root: str, split: str) -> StreamSource:
    """A split of a public TFDS data set, downloaded on first use where there is a network.

    Args:
        name: of the data set, as TFDS names it.
        root: data directory, local or gs://.
        split: in TFDS's split language, such as `train[:80%]`.

    Raises:
        RefusalError: it is not prepared and cannot be downloaded; says what to fetch, and where to.
    """
    builder = tfds.builder(name, data_dir=root)
    if not builder.is_prepared():
        try:
            if "://" in root:
                raise OSError("data sets are not written to a remote directory from here")
            with FileLock(writable_dir(Path(root)) / f".{name}.lock", fallback_to_soft=False):
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
    return _source(builder, split)


def _source(builder: Any, split: str) -> StreamSource:
    """Parts are `file⇥skip⇥take`, so that a piece of a file can be a part too."""
    features = builder.info.features
    parts, lengths = [], []
    for piece in builder.info.splits[split].file_instructions:
        parts.append(f"{piece.filename}\t{piece.skip}\t{piece.take}")
        whole = piece.examples_in_shard - piece.skip
        lengths.append(whole if piece.take < 0 else piece.take)

    @tf.autograph.experimental.do_not_convert
    def read(part: Any) -> Any:
        fields = tf.strings.split(part, "\t")
        skip = tf.strings.to_number(fields[1], tf.int64)
        take = tf.strings.to_number(fields[2], tf.int64)
        return tf.data.TFRecordDataset(fields[0]).skip(skip).take(take)

    @tf.autograph.experimental.do_not_convert
    def decode(serialized: Any) -> tuple[Any, Any]:
        example = features.deserialize_example(serialized)
        image, label = builder.info.supervised_keys
        return example[image], example[label]

    return StreamSource(parts=tuple(parts), read=read, lengths=tuple(lengths), decode=decode)
