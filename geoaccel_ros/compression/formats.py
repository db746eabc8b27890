"""What a CompressedPointCloud2 names as its format: the codec and the version of its stream."""

from geoaccel_ros.compression.bitstream import VERSION
from geoaccel_ros.compression.errors import ForeignFormatError, FutureVersionError

CODEC = "geoaccel"
# Of what is encoded. Streams of earlier versions are decoded, and told by their bytes.
FORMAT = f"{CODEC}/{VERSION}"


def check_format(name: str) -> None:
    """Raise where a message's format is none that is decoded here.

    The name alone was the format before it told the version.

    Raises
    ------
    ForeignFormatError
        If the format names another codec, or no version.
    FutureVersionError
        If it names a version that is later than :data:`FORMAT`'s.
    """
    codec, slash, version = name.partition("/")
    # isdigit alone takes digits of other scripts, which int reads, and superscripts, which not.
    is_version = version.isascii() and version.isdigit() and 0 < len(version) < 10
    if codec != CODEC or (slash and not (is_version and int(version) > 0)):
        raise ForeignFormatError(f"format '{name}' is not '{FORMAT}'")
    if slash and int(version) > VERSION:
        raise FutureVersionError(
            f"format '{name}' is of a later version than '{FORMAT}': update the decoder"
        )
