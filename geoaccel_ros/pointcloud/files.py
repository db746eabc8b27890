"""Point clouds in files: KITTI .bin, NumPy .npy, PCD and PLY, to and from structured arrays."""

from pathlib import Path

import numpy as np

from geoaccel_ros.pointcloud.layout import packed_dtype

XYZ = packed_dtype([("x", "f4"), ("y", "f4"), ("z", "f4")])
XYZI = packed_dtype([("x", "f4"), ("y", "f4"), ("z", "f4"), ("intensity", "f4")])
XYZIR = packed_dtype([*((name, "f4") for name in ("x", "y", "z", "intensity", "ring"))])

# A header is short; what has no end of header within this is no cloud.
_HEADER_LIMIT = 1 << 20
_PLY_TYPES = {
    "char": "i1",
    "int8": "i1",
    "uchar": "u1",
    "uint8": "u1",
    "short": "i2",
    "int16": "i2",
    "ushort": "u2",
    "uint16": "u2",
    "int": "i4",
    "int32": "i4",
    "uint": "u4",
    "uint32": "u4",
    "float": "f4",
    "float32": "f4",
    "double": "f8",
    "float64": "f8",
}
_PLY_NAMES = {
    "i1": "char",
    "u1": "uchar",
    "i2": "short",
    "u2": "ushort",
    "i4": "int",
    "u4": "uint",
    "f4": "float",
    "f8": "double",
}


class PointFileError(ValueError):
    """A file that is no point cloud that can be read; one line names it and says why."""


def read_points(path: str | Path) -> np.ndarray:
    """Read a cloud.

    Parameters
    ----------
    path : str or Path
        By its suffix: .bin (KITTI: x y z intensity as float32), .pcd.bin (nuScenes: ring too),
        .npy (structured, or N x 3 or N x 4 numbers: x y z intensity), .pcd (ascii, binary,
        binary_compressed), .ply (ascii, binary of either byte order).

    Returns
    -------
    structured ndarray (N,) with at least x, y and z, every value as in the file

    Raises
    ------
    PointFileError
        If the file cannot be read, is malformed, or has no points or no x, y, z.
    """
    path = Path(path)
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        known = ", ".join(sorted(_READERS))
        raise PointFileError(f"{path}: unknown kind of file '{path.suffix}' (known: {known})")
    try:
        points = reader(path)
    except OSError as error:
        raise PointFileError(f"{path}: {error.strerror or error}") from None
    except _Malformed as error:
        raise PointFileError(f"{path}: {error}") from None
    missing = [axis for axis in "xyz" if axis not in points.dtype.names]
    if missing:
        present = " ".join(points.dtype.names)
        raise PointFileError(f"{path}: no {', '.join(missing)}; the fields are {present}")
    if not len(points):
        raise PointFileError(f"{path}: no points")
    return points


def write_points(path: str | Path, points: np.ndarray) -> None:
    """Write a cloud in the format that the suffix names: .bin, .npy, .pcd or .ply (binary).

    A .bin keeps x, y, z and intensity (0 where there is none) as float32; the others keep all.

    Parameters
    ----------
    path : str or Path
    points : structured ndarray (N,) with x, y and z

    Raises
    ------
    PointFileError
        If the suffix is unknown, a field has no type in that format, or the file cannot be written.
    """
    path = Path(path)
    writer = _WRITERS.get(path.suffix.lower())
    if writer is None:
        known = ", ".join(sorted(_WRITERS))
        raise PointFileError(f"{path}: unknown kind of file '{path.suffix}' (known: {known})")
    try:
        writer(path, points)
    except OSError as error:
        raise PointFileError(f"{path}: {error.strerror or error}") from None
    except _Malformed as error:
        raise PointFileError(f"{path}: {error}") from None


def from_xyz(xyz: np.ndarray, intensity: np.ndarray | None = None) -> np.ndarray:
    """Return a structured cloud of coordinates (N, 3) and, where given, intensities (N,).

    Coordinates stay float64 if they are; all else becomes float32.
    """
    xyz = np.asarray(xyz)
    code = "f8" if xyz.dtype == np.float64 else "f4"
    fields = [(axis, code) for axis in "xyz"]
    if intensity is not None:
        fields.append(("intensity", "f4"))
    points = np.empty(len(xyz), packed_dtype(fields))
    for column, axis in enumerate("xyz"):
        points[axis] = xyz[:, column]
    if intensity is not None:
        points["intensity"] = intensity
    return points


class _Malformed(ValueError):
    """What is wrong with a file, without its name."""


def _read_bin(path: Path) -> np.ndarray:
    raw = path.read_bytes()
    dtype = XYZIR if path.name.lower().endswith(".pcd.bin") else XYZI
    if len(raw) % dtype.itemsize:
        raise _Malformed(
            f"{len(raw)} bytes, not a multiple of the {dtype.itemsize} of a point "
            f"({' '.join(dtype.names)} as float32)"
        )
    return np.frombuffer(raw, dtype)


def _read_npy(path: Path) -> np.ndarray:
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise _Malformed(f"not a NumPy array ({error})") from None
    if not isinstance(array, np.ndarray):
        raise _Malformed("not a NumPy array")
    if array.dtype.names:
        return array.ravel()
    if array.ndim != 2 or array.shape[1] not in (3, 4) or array.dtype.kind not in "fiu":
        raise _Malformed(
            f"an array of shape {array.shape} and type {array.dtype}; "
            "a cloud is structured, or N x 3 or N x 4 numbers"
        )
    return from_xyz(array[:, :3], array[:, 3] if array.shape[1] == 4 else None)


def _read_pcd(path: Path) -> np.ndarray:
    raw = path.read_bytes()
    header, body = _pcd_header(raw)
    for key in ("FIELDS", "SIZE", "TYPE", "POINTS", "DATA"):
        if key not in header:
            raise _Malformed(f"not a PCD file: no {key} in its header")
    try:
        sizes = [int(value) for value in header["SIZE"]]
        counts = [int(value) for value in header.get("COUNT", ["1"] * len(sizes))]
        number = int(header["POINTS"][0])
    except (ValueError, IndexError):
        raise _Malformed("a number of its header is not a number") from None
    if not len(header["FIELDS"]) == len(sizes) == len(header["TYPE"]) == len(counts):
        raise _Malformed("FIELDS, SIZE, TYPE and COUNT of its header differ in length")
    dtype, columns = _pcd_dtype(header["FIELDS"], header["TYPE"], sizes, counts)
    encoding = header["DATA"][0] if header["DATA"] else ""
    if encoding == "ascii":
        return _parse_ascii(body, number, dtype, columns, sum(counts))
    if encoding == "binary":
        return _from_bytes(body, number, dtype)
    if encoding == "binary_compressed":
        return _pcd_compressed(body, number, dtype, columns, sizes, counts)
    raise _Malformed(f"unknown DATA {encoding!r} (known: ascii, binary, binary_compressed)")


def _pcd_header(raw: bytes) -> tuple[dict[str, list[str]], bytes]:
    header, start = {}, 0
    while "DATA" not in header:
        end = raw.find(b"\n", start, start + _HEADER_LIMIT)
        if end < 0:
            raise _Malformed("not a PCD file: its header does not end")
        words = raw[start:end].decode("latin-1").split("#")[0].split()
        if words:
            header[words[0].upper()] = words[1:]
        start = end + 1
    return header, raw[start:]


def _pcd_dtype(
    names: list[str], kinds: list[str], sizes: list[int], counts: list[int]
) -> tuple[np.dtype, list[tuple[str, int]]]:
    """Return the dtype of a point, and of each field its name (empty for padding) and its code."""
    kept, formats, offsets, columns, offset = [], [], [], [], 0
    for name, kind, size, count in zip(names, kinds, sizes, counts, strict=True):
        code = {"F": "f", "I": "i", "U": "u"}.get(kind, "") + str(size)
        if code not in ("f4", "f8", *(k + s for k in "iu" for s in "1248")) or count < 1:
            raise _Malformed(f"field '{name}' has the unknown type {kind} {size} x {count}")
        is_padding = name == "_"
        if not is_padding:
            if name in kept:
                raise _Malformed(f"two fields are called '{name}'")
            kept.append(name)
            formats.append("<" + code if count == 1 else ("<" + code, (count,)))
            offsets.append(offset)
        columns.append(("" if is_padding else name, count))
        offset += size * count
    if not kept:
        raise _Malformed("its header names no fields")
    dtype = np.dtype({"names": kept, "formats": formats, "offsets": offsets, "itemsize": offset})
    return dtype, columns


def _pcd_compressed(
    body: bytes,
    number: int,
    dtype: np.dtype,
    columns: list[tuple[str, int]],
    sizes: list[int],
    counts: list[int],
) -> np.ndarray:
    """Decompress; then all values of the first field come first, then all of the second."""
    if len(body) < 8:
        raise _Malformed("shorter than its header declares")
    packed_size, size = (int(value) for value in np.frombuffer(body, "<u4", 2))
    if packed_size > len(body) - 8 or size < number * dtype.itemsize:
        raise _Malformed("shorter than its header declares")
    raw = _lzf_decompress(body[8 : 8 + packed_size], size)
    points = np.zeros(number, dtype)
    start = 0
    for (name, count), width in zip(columns, sizes, strict=True):
        length = number * width * count
        if name:
            base = dtype[name].base
            values = np.frombuffer(raw, base, number * count, start)
            points[name] = values if count == 1 else values.reshape(number, count)
        start += length
    return points


def _lzf_decompress(data: bytes, size: int) -> bytes:
    """Undo liblzf's compression (Marc Lehmann): literal runs and copies of what came before."""
    out = bytearray()
    position = 0
    try:
        while position < len(data):
            control = data[position]
            position += 1
            if control < 32:
                end = position + control + 1
                if end > len(data):
                    raise IndexError
                out += data[position:end]
                position = end
                continue
            length = control >> 5
            if length == 7:
                length += data[position]
                position += 1
            start = len(out) - ((control & 31) << 8) - data[position] - 1
            position += 1
            length += 2
            if start < 0 or len(out) + length > size:
                raise IndexError
            available = len(out) - start
            if length <= available:
                out += out[start : start + length]
            else:
                # The copy overlaps itself: a pattern that repeats.
                pattern = bytes(out[start:])
                out += (pattern * (length // available + 1))[:length]
    except IndexError:
        raise _Malformed("its compressed data is damaged") from None
    if len(out) != size:
        raise _Malformed("its compressed data is damaged")
    return bytes(out)


def _read_ply(path: Path) -> np.ndarray:
    raw = path.read_bytes()
    end = raw.find(b"end_header", 0, _HEADER_LIMIT)
    start = raw.find(b"\n", end) + 1
    if not raw.startswith(b"ply") or end < 0 or start == 0:
        raise _Malformed("not a PLY file: no complete header")
    encoding, elements = "", []
    for line in raw[:end].decode("latin-1").splitlines():
        words = line.split()
        if words[:1] == ["format"] and len(words) >= 2:
            encoding = words[1]
        elif words[:1] == ["element"] and len(words) == 3 and words[2].isdigit():
            elements.append((words[1], int(words[2]), []))
        elif words[:1] == ["property"] and elements:
            elements[-1][2].append(words[1:])
    if not elements or elements[0][0] != "vertex":
        raise _Malformed("its first element is not 'vertex'")
    _, number, properties = elements[0]
    for words in properties:
        if len(words) != 2 or words[0] not in _PLY_TYPES:
            raise _Malformed(f"unsupported property of a vertex: {' '.join(words)}")
    order = ">" if encoding == "binary_big_endian" else "<"
    names = [name for _, name in properties]
    if not names or len(set(names)) != len(names):
        raise _Malformed("its vertices have no properties, or two of one name")
    dtype = np.dtype([(name, order + _PLY_TYPES[code]) for code, name in properties])
    body = raw[start:]
    if encoding == "ascii":
        return _parse_ascii(body, number, dtype, [(name, 1) for name in names], len(names))
    if encoding in ("binary_little_endian", "binary_big_endian"):
        points = _from_bytes(body, number, dtype)
        return points.astype(dtype.newbyteorder("<")) if order == ">" else points
    raise _Malformed(f"unknown format {encoding!r}")


def _from_bytes(body: bytes, number: int, dtype: np.dtype) -> np.ndarray:
    if len(body) < number * dtype.itemsize:
        raise _Malformed(
            f"{len(body)} bytes of points, its header declares {number * dtype.itemsize}"
        )
    return np.frombuffer(body, dtype, number)


def _parse_ascii(
    body: bytes, number: int, dtype: np.dtype, columns: list[tuple[str, int]], width: int
) -> np.ndarray:
    lines = [line.split() for line in body.decode("latin-1").splitlines() if line.strip()][:number]
    if len(lines) < number:
        raise _Malformed(f"{len(lines)} lines of points, its header declares {number}")
    if any(len(words) != width for words in lines):
        raise _Malformed(f"a line has not the {width} values that its header declares")
    points = np.zeros(number, dtype)
    table = np.array(lines, dtype="S").reshape(number, width)
    start = 0
    for name, count in columns:
        if name:
            base = dtype[name].base
            try:
                # Through the widest of each kind: S to a narrow type would not round but refuse.
                wide = np.float64 if base.kind == "f" else np.int64
                values = table[:, start : start + count].astype(wide).astype(base)
            except ValueError as error:
                raise _Malformed(f"field '{name}' holds what is no number ({error})") from None
            points[name] = values[:, 0] if count == 1 else values
        start += count
    return points


def _write_bin(path: Path, points: np.ndarray) -> None:
    packed = np.zeros(len(points), XYZI)
    for name in XYZI.names:
        if name in points.dtype.names:
            packed[name] = points[name]
    packed.tofile(path)


def _write_npy(path: Path, points: np.ndarray) -> None:
    np.save(path, points)


def _write_pcd(path: Path, points: np.ndarray) -> None:
    packed = _packed(points)
    bases = [packed.dtype[name].base for name in packed.dtype.names]
    counts = [int(np.prod(packed.dtype[name].shape, dtype=int)) for name in packed.dtype.names]
    header = (
        "# .PCD v0.7 - Point Cloud Data file format\nVERSION 0.7\n"
        f"FIELDS {' '.join(packed.dtype.names)}\n"
        f"SIZE {' '.join(str(base.itemsize) for base in bases)}\n"
        f"TYPE {' '.join(base.kind.upper() for base in bases)}\n"
        f"COUNT {' '.join(map(str, counts))}\n"
        f"WIDTH {len(packed)}\nHEIGHT 1\nVIEWPOINT 0 0 0 1 0 0 0\n"
        f"POINTS {len(packed)}\nDATA binary\n"
    )
    path.write_bytes(header.encode() + packed.tobytes())


def _write_ply(path: Path, points: np.ndarray) -> None:
    packed = _packed(points)
    lines = ["ply", "format binary_little_endian 1.0", f"element vertex {len(packed)}"]
    for name in packed.dtype.names:
        code = packed.dtype[name].str[1:]
        if code not in _PLY_NAMES:
            raise _Malformed(f"PLY has no type for field '{name}' ({packed.dtype[name]})")
        lines.append(f"property {_PLY_NAMES[code]} {name}")
    path.write_bytes(("\n".join([*lines, "end_header"]) + "\n").encode() + packed.tobytes())


def _packed(points: np.ndarray) -> np.ndarray:
    """Return the points little-endian and without padding."""
    names = points.dtype.names
    fields = [(name, points.dtype[name].newbyteorder("<")) for name in names]
    for name, dtype in fields:
        if dtype.base.kind not in "fiu":
            raise _Malformed(f"field '{name}' of type {dtype} is no number")
    packed = np.empty(len(points), np.dtype(fields))
    for name in names:
        packed[name] = points[name]
    return packed


_READERS = {".bin": _read_bin, ".npy": _read_npy, ".pcd": _read_pcd, ".ply": _read_ply}
_WRITERS = {".bin": _write_bin, ".npy": _write_npy, ".pcd": _write_pcd, ".ply": _write_ply}
