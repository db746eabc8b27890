"""Point layouts: the fields of a sensor_msgs/PointCloud2 and the NumPy dtype that reads them.

A cloud is a structured array of shape (N,), one element a point, whose itemsize is the message's
``point_step``: padding and field order survive, and the bytes need not be copied to be read.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

# sensor_msgs/PointField's datatype constants, 1 to 8.
_TYPE_OF_DATATYPE = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 8: "f8"}
# NumPy has no dtype of more bytes.
_LONGEST_POINT = 2**31 - 1
_DATATYPE_OF_TYPE = {code: datatype for datatype, code in _TYPE_OF_DATATYPE.items()}


class LayoutError(ValueError):
    """A cloud whose declaration contradicts itself or its data; the message says which part."""


@dataclass(frozen=True)
class PointField:
    """One field of a point, as sensor_msgs/PointField declares it (offset in bytes)."""

    name: str
    offset: int
    datatype: int
    count: int = 1


def dtype_of(fields: Iterable[PointField], point_step: int, is_bigendian: bool = False) -> np.dtype:
    """Return the dtype of one point: every field at its offset, ``point_step`` bytes in all.

    ``fields`` may be messages too: anything with name, offset, datatype and count. A count of 0,
    which some drivers send, means 1; a second field of the same name gets the suffix ``_2`` and so
    on; fields without a name are padding.

    Raises
    ------
    LayoutError
        If a datatype is unknown, a field lies outside the point, no field remains, or the point
        is of 2 GiB and more.
    """
    if point_step > _LONGEST_POINT:
        raise LayoutError(f"point_step {point_step} is too long for a point")
    names, formats, offsets = [], [], []
    for field in fields:
        if field.datatype not in _TYPE_OF_DATATYPE:
            raise LayoutError(
                f"field '{field.name}' has the unknown datatype {field.datatype} (known: 1 to 8)"
            )
        code = (">" if is_bigendian else "<") + _TYPE_OF_DATATYPE[field.datatype]
        count = max(field.count, 1)
        end = field.offset + count * np.dtype(code).itemsize
        if field.offset < 0 or end > point_step:
            raise LayoutError(
                f"field '{field.name}' ends at byte {end}, beyond point_step {point_step}"
            )
        if not field.name:
            continue
        names.append(_unique(field.name, names))
        formats.append(code if count == 1 else (code, (count,)))
        offsets.append(field.offset)
    if not names:
        raise LayoutError("the cloud declares no fields")
    return np.dtype(
        {"names": names, "formats": formats, "offsets": offsets, "itemsize": point_step}
    )


def fields_of(dtype: np.dtype) -> list[PointField]:
    """Return the fields that declare ``dtype``, the inverse of :func:`dtype_of`.

    Raises
    ------
    LayoutError
        If a field's type has no PointField datatype (64-bit integers, strings, …).
    """
    fields = []
    for name in dtype.names:
        field_dtype, offset = dtype.fields[name][:2]
        base, shape = field_dtype.subdtype or (field_dtype, (1,))
        code = base.kind + str(base.itemsize)
        if code not in _DATATYPE_OF_TYPE:
            raise LayoutError(
                f"field '{name}' of type {base} cannot be sent: no PointField datatype"
            )
        fields.append(PointField(name, offset, _DATATYPE_OF_TYPE[code], int(np.prod(shape))))
    return sorted(fields, key=lambda field: field.offset)


def packed_dtype(fields: Iterable[tuple[str, str]]) -> np.dtype:
    """Return a little-endian dtype without padding: names and NumPy type codes, in order."""
    return np.dtype([(name, "<" + np.dtype(code).str[1:]) for name, code in fields])


def from_xyz(xyz: np.ndarray, intensity: np.ndarray | None = None) -> np.ndarray:
    """Return a structured cloud of coordinates (N, 3) and, where given, intensities (N,).

    Coordinates become float32 where that holds all that their type can, else float64.
    """
    xyz = np.asarray(xyz)
    code = _float_for([xyz.dtype]).str[1:]
    fields = [(axis, code) for axis in "xyz"]
    if intensity is not None:
        fields.append(("intensity", "f4"))
    points = np.empty(len(xyz), packed_dtype(fields))
    for column, axis in enumerate("xyz"):
        points[axis] = xyz[:, column]
    if intensity is not None:
        points["intensity"] = intensity
    return points


def coordinates(points: np.ndarray) -> np.ndarray:
    """Return x, y and z as an array of shape (N, 3), float32 where that holds them, else float64.

    A view where the three lie side by side as native floats, otherwise a copy.

    Raises
    ------
    LayoutError
        If x, y or z is missing or not a number; the message lists the fields present.
    """
    missing = [axis for axis in "xyz" if axis not in (points.dtype.names or ())]
    if missing:
        present = " ".join(points.dtype.names or ("none",))
        raise LayoutError(f"no field {', '.join(missing)}; the cloud has {present}")
    types = [points.dtype.fields[axis][0] for axis in "xyz"]
    if any(t.subdtype or t.kind not in "fiu" for t in types):
        raise LayoutError(f"x y z must be numbers, got {', '.join(map(str, types))}")
    wide = _float_for(types)
    offsets = [points.dtype.fields[axis][1] for axis in "xyz"]
    adjacent = offsets == [offsets[0] + k * wide.itemsize for k in range(3)]
    if adjacent and set(types) == {wide} and points.flags.c_contiguous:
        return np.ndarray(
            (len(points), 3), wide, points, offsets[0], (points.dtype.itemsize, wide.itemsize)
        )
    return np.stack([points[axis].astype(wide) for axis in "xyz"], axis=1)


def _float_for(types: Iterable[np.dtype]) -> np.dtype:
    exact = all(np.can_cast(t, np.float32) for t in types)
    return np.dtype(np.float32 if exact else np.float64)


def _unique(name: str, taken: list[str]) -> str:
    candidate, number = name, 2
    while candidate in taken:
        candidate, number = f"{name}_{number}", number + 1
    return candidate
