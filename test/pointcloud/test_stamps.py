import pytest

from geoaccel_ros.pointcloud.stamps import format_stamp, parse_stamp


@pytest.mark.parametrize(
    ("text", "stamp_ns"),
    [
        # As float64, 1635236489.123456789 is 1635236489.1234567165.
        ("1635236489.123456789", 1_635_236_489_123_456_789),
        ("1.036000e-01", 103_600_000),
        ("0", 0),
        ("-0.25", -250_000_000),
        ("0.0000000005", 0),
        ("0.0000000015", 2),
    ],
)
def test_a_text_keeps_its_nanoseconds(text, stamp_ns):
    assert parse_stamp(text) == stamp_ns


@pytest.mark.parametrize("text", ["", "soon", "nan", "inf", "1e99", "1,5"])
def test_what_is_no_stamp_is_refused(text):
    with pytest.raises(ValueError, match="is no number of seconds"):
        parse_stamp(text)


@pytest.mark.parametrize("stamp_ns", [0, 1, -1, -1_500_000_000, 1_635_236_489_000_000_001])
def test_written_stamps_read_back(stamp_ns):
    assert parse_stamp(format_stamp(stamp_ns)) == stamp_ns


def test_nine_decimals():
    assert format_stamp(1_635_236_489_000_000_001) == "1635236489.000000001"
    assert format_stamp(-1) == "-0.000000001"
