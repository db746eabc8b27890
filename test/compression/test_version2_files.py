"""Streams of version 2 stay decodable: files of each mode and kind of section, pinned."""

from pathlib import Path

import numpy as np
import pytest
import reference_decoder

from geoaccel_ros.compression.codec import inspect

# Never made anew: whoever changes what they decode to makes version 3.
FILES = sorted((Path(__file__).parent / "data").glob("version2_*.gapc"))


def check(decode, path):
    """Check the points, of which the file beside has as many rows as the cloud."""
    expected = np.load(path.with_suffix(".npy"))
    points, height = decode(path.read_bytes())
    assert height == len(expected)
    assert points.dtype == expected.dtype
    assert points.tobytes() == expected.tobytes()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_files_decode_to_the_points_that_their_encoder_decoded(octree, path):
    check(octree.decode, path)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_second_decoder_decodes_them_too(path):
    check(reference_decoder.decode, path)


def test_every_mode_and_kind_of_section_is_among_them():
    streams = [path.read_bytes() for path in FILES]
    assert {inspect(stream).mode for stream in streams} == {"octree", "scan", "lossless"}
    sections = [reference_decoder.unpack(stream)[2] for stream in streams]

    def firsts(name):
        """Return the first bytes of all sections of this name; None of one that is empty."""
        contents = [each[name].content for each in sections if name in each]
        return {content[0] if content else None for content in contents}

    # Without beams, the ground, rings.
    assert firsts("beams") == {None, 1, 8}
    # As they are, by a lag, by the ring.
    assert firsts("lines") == {0, 1, 2}
    # Linear and spin, with points where the sensor was and without.
    assert firsts("geometry") == {0, 1, 2, 3}
    for name in ("occupancy", "multiplicity", "nonfinite"):
        assert None in firsts(name)
        assert len(firsts(name)) > 1
