import pytest

from geoaccel_ros.compression.codec import inspect
from geoaccel_ros.compression.errors import ForeignFormatError, FutureVersionError
from geoaccel_ros.compression.formats import FORMAT, check_format


def test_the_format_names_codec_and_version():
    assert FORMAT == "geoaccel/2"


@pytest.mark.parametrize("name", ["geoaccel", "geoaccel/1", "geoaccel/2"])
def test_own_formats_are_accepted(name):
    check_format(name)


@pytest.mark.parametrize("name", ["geoaccel/3", "geoaccel/9", "geoaccel/10"])
def test_a_later_version_is_told_from_a_foreign_format(name):
    with pytest.raises(FutureVersionError, match=rf"'{name}' .* 'geoaccel/2': update the decoder"):
        check_format(name)


@pytest.mark.parametrize(
    "name",
    ["", "draco", "cloudini", "draco/2", "geoaccel/", "geoaccel/x", "geoaccel/-1", "geoaccel/0",
     "geoaccel/²", "geoaccel/٢", "geoaccel/2/3", "geoaccel2", "Geoaccel/2",
     "geoaccel/" + 5000 * "9"],
)  # fmt: skip
def test_a_foreign_format_is_refused(name):
    with pytest.raises(ForeignFormatError, match="is not 'geoaccel/2'"):
        check_format(name)


def test_a_stream_of_a_later_version_is_told_from_a_damaged_one():
    with pytest.raises(FutureVersionError, match="version 9, known are 1 to 2: update the decoder"):
        inspect(b"GAPC\x09" + bytes(100))
