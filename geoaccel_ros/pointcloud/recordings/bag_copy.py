"""A bag in the likeness of another: topics and messages as they were, or others in their place."""

import contextlib
import fcntl
import os
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from rosbags.interfaces import Connection, QosReliability
from rosbags.rosbag1 import Writer as Rosbag1Writer
from rosbags.rosbag1.reader import decompressors
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin
from rosbags.rosbag2 import Writer as Rosbag2Writer
from rosbags.rosbag2.storage_mcap import McapReader

from geoaccel_ros.pointcloud.recordings.bag_messages import BagMessages
from geoaccel_ros.pointcloud.recordings.cloud import RecordingError

# The last version of metadata.yaml that distributions since Humble read; 9 writes QoS otherwise.
_METADATA_VERSION = 8
# Of a type that the bag does not define; rosbags writes none without.
_UNKNOWN_HASH = "RIHS01_" + "0" * 64


class BagCopy:
    """A new bag, stored and compressed as ``source`` is; what it holds is written to it.

    Of a rosbag2 in several files one is made. A context manager: at its end the bag has its name,
    or is gone where that is an exception or :meth:`finish` was not called. Until then it is in
    ``.<name>.partial`` beside its place: all that a killed process leaves, and the next replaces.

    Parameters
    ----------
    source : BagMessages
    path : Path
        A .bag file where the source is one, else a folder; must not exist.

    Raises
    ------
    RecordingError
        If the path exists, its name is one of the other kind, another process writes it, or, later,
        nothing can be written to it.
    """

    def __init__(self, source: BagMessages, path: Path):
        self._source = source
        self._path = path
        self._check_free()
        if source.is_ros1 and path.suffix != ".bag":
            raise RecordingError(f"'{path}': a bag of ROS 1 becomes one of ROS 1, name it *.bag")
        if not source.is_ros1 and path.suffix in (".bag", ".db3", ".mcap"):
            raise RecordingError(f"'{path}': a rosbag2 is a folder, name it without {path.suffix}")
        self._folder = path.with_name(f".{path.name}.partial")
        if self._folder.is_symlink() or self._folder.is_file():
            raise RecordingError(f"'{self._folder}' is in the way: remove it")
        # A rosbag2's file and metadata are named after its folder, which has its name in here.
        self._partial = self._folder / path.name
        self._writer: Rosbag1Writer | Rosbag2Writer | None = None
        self._is_finished = False

    def __enter__(self) -> "BagCopy":
        make_writer = _ros1_writer if self._source.is_ros1 else _ros2_writer
        with self._complaining():
            self._lock = self._locked_folder()
            try:
                _remove(self._partial)
                self._writer = make_writer(self._source, self._partial)
                self._writer.open()
            except BaseException:
                self._clean_up()
                raise
        return self

    def __exit__(self, exception_type, *exception) -> None:
        try:
            if exception_type is None and self._is_finished:
                # Others may have made it meanwhile.
                self._check_free()
                with self._complaining():
                    self._partial.rename(self._path)
        finally:
            self._clean_up()

    def finish(self) -> None:
        """Write what is left to write, such as the index; all messages are there."""
        with self._complaining():
            self._writer.close()
        self._is_finished = True

    def topic_like(self, connection: Connection) -> Connection:
        """Return a topic of the name, type, definition and QoS that one of the source has."""
        return self._topic(
            connection.topic,
            connection.msgtype,
            connection.msgdef.data,
            connection.digest,
            connection.ext,
        )

    def topic_in_place_of(self, connection: Connection, topic: str, msgtype: str) -> Connection:
        """Return a topic of another name and type than one of the source.

        Parameters
        ----------
        msgtype : str
            One that the source's types know.
        """
        types, ext = self._source.types, connection.ext
        if self._source.is_ros1:
            definition, digest = types.generate_msgdef(msgtype, ros_version=1)
        else:
            definition, _ = types.generate_msgdef(msgtype, ros_version=2)
            digest = types.hash_rihs01(msgtype)
            # As the nodes publish it; of a sensor's best effort a reliable subscriber hears none.
            profiles = [
                profile._replace(reliability=QosReliability.RELIABLE)
                for profile in ext.offered_qos_profiles
            ]
            ext = ext._replace(offered_qos_profiles=profiles)
        return self._topic(topic, msgtype, definition, digest, ext)

    def write(self, connection: Connection, recorded_ns: int, raw: bytes | memoryview) -> None:
        """Add a message to one of the topics that this object returned."""
        with self._complaining():
            self._writer.write(connection, recorded_ns, raw)

    @contextlib.contextmanager
    def _complaining(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            reason = getattr(error, "strerror", None) or error
            raise RecordingError(f"cannot write '{self._path}': {reason}") from None

    def _check_free(self) -> None:
        # A link that leads nowhere would be replaced, too.
        if os.path.lexists(self._path):
            raise RecordingError(
                f"'{self._path}' exists already: name another output, or remove it"
            )

    def _locked_folder(self) -> int:
        """Make the folder for what is not complete; return what keeps others from it."""
        self._folder.mkdir(parents=not self._source.is_ros1, exist_ok=True)
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(folder)
            raise RecordingError(
                f"'{self._path}' is being written by another process: name another output"
            ) from None
        except OSError:
            # Some network file systems lock no folders.
            pass
        return folder

    def _clean_up(self) -> None:
        if self._writer is not None and not self._is_finished:
            # Of a bag that is removed next, nothing has to be told.
            with contextlib.suppress(Exception):
                self._writer.abort()
        with contextlib.suppress(OSError):
            _remove(self._partial)
            self._folder.rmdir()
        os.close(self._lock)

    def _topic(self, topic: str, msgtype: str, definition: str, digest: str, ext) -> Connection:
        for known in self._writer.connections:
            if (known.topic, known.msgtype) != (topic, msgtype):
                continue
            # A rosbag2 has a topic once; a bag of ROS 1 once a publisher, who comes twice if it was
            # started again, which rosbags would not write.
            if not self._source.is_ros1 or (known.digest, known.ext) == (digest, ext):
                return known
        if self._source.is_ros1:
            return self._writer.add_connection(
                topic, msgtype, msgdef=definition, md5sum=digest, **ext._asdict()
            )
        return self._writer.add_connection(
            topic, msgtype, msgdef=definition, rihs01=digest or _UNKNOWN_HASH, **ext._asdict()
        )


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _ros1_writer(source: BagMessages, path: Path) -> Rosbag1Writer:
    writer = Rosbag1Writer(path)
    used = [chunk.decompressor for chunk in source.reader.chunks.values()]
    for name in ("bz2", "lz4"):
        if decompressors[name] in used:
            writer.set_compression(Rosbag1Writer.CompressionFormat[name.upper()])
            break
    return writer


def _ros2_writer(source: BagMessages, path: Path) -> Rosbag2Writer:
    reader = source.reader
    files = getattr(reader.storage, "storages", [reader.storage])
    is_mcap = isinstance(files[0], McapReader) if files else False
    plugin = StoragePlugin.MCAP if is_mcap else StoragePlugin.SQLITE3
    writer = Rosbag2Writer(path, version=_METADATA_VERSION, storage_plugin=plugin)
    mode = CompressionMode[(reader.compression_mode or "none").upper()]
    if is_mcap and any(chunk.compression for file in files for chunk in file.chunks):
        mode = CompressionMode.STORAGE
    writer.set_compression(mode, CompressionFormat.ZSTD)
    for key, value in (reader.storage.metadata.custom or {}).items():
        writer.set_custom_data(key, str(value))
    return writer
