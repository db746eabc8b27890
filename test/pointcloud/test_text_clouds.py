"""Clouds in text files: separators, headers, comments, counts, and what is refused."""

import re
from pathlib import Path

import numpy as np
import pytest

from geoaccel_ros.pointcloud.files import PointFileError, read_points

SHARED = Path(__file__).resolve().parents[3] / "shared"
needs_data = pytest.mark.skipif(not SHARED.exists(), reason="real clouds lie in ../shared")


@pytest.fixture
def read(tmp_path):
    """Write a text to a file of that name and read the cloud in it."""

    def write_and_read(text, name="cloud.txt"):
        content = text if isinstance(text, bytes) else text.encode()
        (tmp_path / name).write_bytes(content)
        return read_points(tmp_path / name)

    return write_and_read


@pytest.mark.parametrize("name", ["a.xyz", "a.txt", "a.csv", "a.pts", "a.XYZ"])
@pytest.mark.parametrize("separator", [" ", "   ", "\t", ",", ";", " , ", ",\t"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_separators(read, name, separator, end):
    rows = [("500000.1234567", "-5.4e6", "1"), ("2", "+3.5", "nan")]
    found = read(end.join(separator.join(row) for row in rows), name)
    assert found.dtype.names == ("x", "y", "z")
    assert all(found.dtype[axis] == np.float64 for axis in "xyz")
    assert found[0].tolist() == (500000.1234567, -5.4e6, 1.0)
    assert found[1].tolist()[:2] == (2.0, 3.5) and np.isnan(found["z"][1])


@pytest.mark.parametrize(
    ("name", "width", "names"),
    [
        ("a.xyz", 3, "x y z"),
        ("a.csv", 4, "x y z intensity"),
        ("a.txt", 5, "x y z column_4 column_5"),
        # Normals or colours: who knows.
        ("a.xyz", 6, "x y z column_4 column_5 column_6"),
        ("a.pts", 4, "x y z intensity"),
        ("a.pts", 6, "x y z red green blue"),
        ("a.pts", 7, "x y z intensity red green blue"),
        ("a.pts", 8, "x y z column_4 column_5 column_6 column_7 column_8"),
    ],
)
def test_names_without_a_header(read, name, width, names):
    found = read(" ".join(map(str, range(width))) + "\n", name)
    assert found.dtype.names == tuple(names.split())
    assert found[0].tolist() == tuple(range(width))


@pytest.mark.parametrize(
    ("header", "names"),
    [
        ("x,y,z,t", "x y z t"),
        ("X, Y, Z, Intensity", "x y z intensity"),
        ('"X";"Y";"Z";"Echo Width"', "x y z echo_width"),
        ("x\ty\tz\tscalar field", "x y z scalar_field"),
        ("  x   y z   t ", "x y z t"),
        ('"x" "y" "z" "echo width"', "x y z echo_width"),
        ("# x y z t", "x y z t"),
        ("//X Y Z T", "x y z t"),
        ("intensity,z,y,x", "intensity z y x"),
        (",x,y,z", "column_1 x y z"),
        ("x,y,z,t,", "x y z t"),
        ("\ufeffx,y,z,t", "x y z t"),
        # Names that begin like numbers do not make it a point.
        ("x,y,z,1st_return", "x y z 1st_return"),
        # Comments, no headers: of another width, or without x, y and z.
        ("# x y z", "x y z intensity"),
        ("# made by a scanner", "x y z intensity"),
        ("#", "x y z intensity"),
    ],
)
@pytest.mark.parametrize("row", ["1 2 3 4", "1,2,3,4", "1;2;3;4;"])
def test_headers(read, header, names, row):
    found = read(f"{header}\n{row}\n{row}\n")
    assert found.dtype.names == tuple(names.split())
    assert found.tolist() == [(1.0, 2.0, 3.0, 4.0)] * 2


def test_header_of_latin_1(read):
    found = read("x,y,z,größe\n1,2,3,4\n".encode("latin-1"))
    assert found.dtype.names == ("x", "y", "z", "größe")


def test_the_last_comment_before_the_points_is_the_header(read):
    found = read("# a b x y z\n# t z y x\n# exported today\n\n1 2 3 4\n# x y z t\n5 6 7 8\n")
    assert found.dtype.names == ("t", "z", "y", "x")
    assert found["x"].tolist() == [4.0, 8.0]


def test_comments_blank_lines_and_quotes(read):
    found = read('\n# note\n1,"2",3 # here\n  \n// there\n"4",5, 6//,7\n\n')
    assert found.tolist() == [(1.0, 2.0, 3.0), (4.0, 5.0, 6.0)]


def test_a_count_before_the_points(read):
    rows = "1 2 3 4 5 6 7\n-1 -2 -3 -4 -5 -6 -7\n"
    assert len(read("2\n" + rows, "a.pts")) == 2
    assert read("//X Y Z R G B I\n 2 \n" + rows).dtype.names[3:] == ("r", "g", "b", "i")
    for count in (1, 3):
        with pytest.raises(PointFileError, match=f"declares {count} points, but 2 follow"):
            read(f"{count}\n{rows}", "a.pts")


def test_spaces_and_tabs_together(read):
    assert read("\t1\t 2\t3\n 4 5\t6\n").tolist() == [(1.0, 2.0, 3.0), (4.0, 5.0, 6.0)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no points"),
        ("x,y,z\n", "no points"),
        ("# x y z\n", "no points"),
        ("3\n", "no points"),
        ("hello world\n", "no x, y, z; the fields are hello world"),
        ("lon,lat,h\n1,2,3\n", "no x, y, z; the fields are lon lat h"),
        ("x,y,h\n1,2,3\n", "no z; the fields are x y h"),
        ("1,2\n3,4\n", "line 1: at least x, y and z expected, found 2"),
        ("1 2 3\n\n4 5\n", "line 3: 3 values expected, found 2"),
        ("1 2 3\n4 5 6 7\n", "line 2: 3 values expected, found 4"),
        ("x,y,z\n\n1,2,3\n4,five,6\n", "line 4: y is 'five', which is no number"),
        ("1,2,3\n4,,6\n", "line 2: y is '', which is no number"),
        # Between tabs as between commas: nothing moves into the place of what is missing.
        ("1\t2\t3\t4\n1\t\t3\t4\n", "line 2: y is '', which is no number"),
        ("1,2,3,4\n1,2,3,\n", "line 2: intensity is '', which is no number"),
        ("1,2,3,\n1,2,3,4\n", "line 2: 3 values expected, found 4"),
        ("1,5;2,5;3,5\n", "line 1: x is '1,5', which is no number"),
        ("1 2 0x10\n", "line 1: z is '0x10', which is no number"),
        ("1 2 1_0\n", "line 1: z is '1_0', which is no number"),
        ("1 2 \u0663\n", "line 1: z is '\u0663', which is no number"),
        ('1,"2\n3",4\n', "line 1: at least x, y and z expected, found 2"),
        ("x,y,z\nm,m,m\n1,2,3\n", "line 2: x is 'm', which is no number"),
        ("x,y,z,t\n1,2,3\n", "the header names 4 columns, but line 2 has 3"),
        ("x,y\n1,2,3\n", "the header names 2 columns, but line 2 has 3"),
        ("x,y,z,X\n1,2,3,4\n", "two fields are called 'x'"),
        ("2\nwater\nO 0 0 0\nH 0 0 1\n", "the header names 1 columns, but line 3 has 4"),
        (b"1 2 3\n4 5 6\0", "not a text file"),
        ("x,y,z\n1,2,3\n".encode("utf-16"), "not a text file"),
        ('"' + 200_000 * "a" + '",y,z\n1,2,3\n', "the header names 1 columns"),
    ],
)
def test_a_line_that_says_what_is_wrong(read, tmp_path, text, reason):
    with pytest.raises(PointFileError, match=re.escape(reason)) as raised:
        read(text)
    assert str(raised.value).startswith(str(tmp_path)) and "\n" not in str(raised.value)
    assert len(str(raised.value)) < 300 + len(str(tmp_path))


def test_the_line_of_an_error_in_a_long_file(read):
    rows = ["1 2 3"] * 20_000
    rows[5000] = ""
    for number in (1, 2, 9_999, 19_999):
        wrong = [*rows[:number], "1 2 3 4", *rows[number:], "1 2 z"]
        with pytest.raises(PointFileError, match=f"line {number + 1}: 3 values expected, found 4"):
            read("\n".join(wrong))


def test_every_value_survives(read):
    table = np.random.default_rng(0).normal(5e5, 1e5, (3000, 5))
    text = "\n".join(",".join(map(repr, row)) for row in table.tolist())
    found = read("x,y,z,nx,t\n" + text, "a.csv")
    np.testing.assert_array_equal(np.column_stack([found[n] for n in found.dtype.names]), table)


@needs_data
def test_real_csv_with_a_header():
    path = SHARED / "data" / "eth_car_pair" / "car_cloud400.csv"
    found = read_points(path)
    assert found.dtype.names == ("x", "y", "z", "nx", "ny", "nz") and len(found) == 24989
    assert found[0].tolist() == (-3.5376, 0.639553, -1.37678, -0.060181, 0.173729, 0.982953)
    normals = np.column_stack([found[name] for name in ("nx", "ny", "nz")])
    # Written with six digits.
    np.testing.assert_allclose(np.linalg.norm(normals, axis=1), 1.0, atol=1e-5)


@needs_data
def test_real_csv_without_header_or_commas():
    path = SHARED / "data" / "eth_car_pair" / "car_cloud401.csv"
    found = read_points(path)
    assert found.dtype.names == ("x", "y", "z")
    expected = np.array(path.read_text().split(), float).reshape(25193, 3)
    np.testing.assert_array_equal(np.column_stack([found[axis] for axis in "xyz"]), expected)


@needs_data
def test_real_csv_that_is_no_cloud():
    with pytest.raises(PointFileError, match="line 2: reading is 'car_cloud400.csv'"):
        read_points(SHARED / "data" / "eth_car_pair" / "carCloudList.csv")
