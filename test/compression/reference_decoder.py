"""A second decoder of streams of version 2, in plain Python, written from docs/bitstream.md.

It shares nothing with the package but the bytes of its tables, takes its time, and checks what it
needs to notice that it went wrong. ``decode`` returns the points and the height.
"""

import struct
from pathlib import Path

import numpy as np
import zstandard

TABLES = Path(__file__).resolve().parents[2] / "geoaccel_ros" / "compression" / "tables"
TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 8: "f8"}
GEOMETRY = {
    1: ["beams", "occupancy", "multiplicity"],
    2: ["lines", "geometry"],
    3: ["lines"],
}
OCTREE, SCAN, LOSSLESS = 1, 2, 3


# Integers as the document has them: >> keeps the sign, which is Python's own; these wrap and divide
# as it says.


def u32(value):
    return value & 0xFFFFFFFF


def u64(value):
    return value & 0xFFFFFFFFFFFFFFFF


def i32(value):
    return (value + 2**31 & 0xFFFFFFFF) - 2**31


def i64(value):
    return (value + 2**63 & 0xFFFFFFFFFFFFFFFF) - 2**63


def quotient(dividend, divisor):
    """Return the quotient rounded towards 0."""
    found = abs(dividend) // abs(divisor)
    return -found if (dividend < 0) != (divisor < 0) else found


def clamp(value, low, high):
    return min(max(value, low), high)


# Container


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


class Bytes:
    """A section, read from its beginning."""

    def __init__(self, content):
        self.content, self.at = bytes(content), 0

    def take(self, layout):
        values = struct.unpack_from("<" + layout, self.content, self.at)
        self.at += struct.calcsize("<" + layout)
        return values if len(values) > 1 else values[0]

    def leb128(self):
        value, shift = 0, 0
        while True:
            byte = self.take("B")
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def folded(self):
        value = self.leb128()
        return -(value >> 1) - 1 if value & 1 else value >> 1

    def rest(self, length=None):
        end = len(self.content) if length is None else self.at + length
        part = Bytes(self.content[self.at : end])
        assert length is None or len(part.content) == length
        self.at = end
        return part

    @property
    def is_used_up(self):
        return self.at == len(self.content)

    def rice(self, count):
        if count == 0:
            return []
        k = self.take("B")

        def bits():
            while True:
                byte = self.take("B")
                for bit in range(8):
                    yield byte >> bit & 1

        low = bits()
        lows = [sum(next(low) << bit for bit in range(k)) for _ in range(count)]
        unary = bits()
        numbers = []
        for each in lows:
            zeros = 0
            while not next(unary):
                zeros += 1
            numbers.append(zeros << k | each)
        return numbers


def unpack(data):
    """Return the header's numbers, the dtype, and the sections by name."""
    source = Bytes(data)
    magic, version, mode, fields = source.take("4sBBH")
    assert (magic, version) == (b"GAPC", 2)
    names = ["point_step", "height", "points", "source_points", "nonfinite", "cells", "depth"]
    header = dict(zip(names, source.take("7I"), strict=True)) | {"mode": mode}
    header["step"], *header["origin"] = source.take("d3q")
    table = []
    for _ in range(fields):
        name = source.take(f"{source.take('B')}s").decode()
        code, offset, count = source.take("BII")
        base = (">" if code & 128 else "<") + TYPES[code & 127]
        table.append((name, base if count == 1 else (base, (count,)), offset))
    names, formats, offsets = map(list, zip(*table, strict=True))
    dtype = np.dtype(
        {
            "names": names,
            "formats": formats,
            "offsets": offsets,
            "itemsize": header["point_step"],
        }
    )
    attributes = names if mode == LOSSLESS else [name for name in names if name not in "xyz"]
    names = GEOMETRY[mode] + [f"field {name}" for name in attributes]
    names += [] if mode == LOSSLESS else ["nonfinite"]
    rows = [source.take("QI") for _ in names]
    checked = data[: source.at]
    assert source.take("I") == crc32c(checked)
    sections = {}
    for name, (length, checksum) in zip(names, rows, strict=True):
        section = source.rest(length)
        assert crc32c(section.content) == checksum
        sections[name] = section
    assert source.is_used_up
    return header, dtype, sections


# Events


def probabilities():
    odds, below = 2**32, []
    for _ in range(129):
        total = odds + 2**32
        below.append(max(1, (2 * odds * 2**15 + total) // (2 * total)))
        odds = 12 * odds // 13
    return [below[128 - i] if i < 128 else 2**15 - below[i - 128] for i in range(256)]


PROBABILITIES = probabilities()


def table_of(name, kind=0, kinds=1):
    content = list((TABLES / f"{name}.bin").read_bytes())
    size = len(content) // kinds
    return content[kind * size : (kind + 1) * size]


class Chunk:
    """Decodes the events of a chunk."""

    def __init__(self, words, table):
        self._words, self._at, self._table = words, 0, table
        self._state = self._word() << 16 | self._word() if words else 2**16

    def _word(self):
        self._at += 1
        return self._words[self._at - 1]

    def bit(self, context):
        one = PROBABILITIES[self._table[context]]
        high, slot = self._state >> 15, self._state & 0x7FFF
        bit = int(slot < one)
        self._state = one * high + slot if bit else (2**15 - one) * high + slot - one
        if self._state < 2**16:
            self._state = self._state << 16 | self._word()
        return bit

    def even(self, count):
        value = 0
        for _ in range(count):
            value = value << 1 | self.bit(0)
        return value

    def unsigned(self, base):
        """Return the integer whose contexts begin at ``base``."""
        if self.bit(base):
            return 0
        size = 0
        while size < 63 and self.bit(base + 2 + min(size, 31)):
            size += 1
        if size == 0:
            return 1
        context = base + 34 + 3 * (min(size, 12) - 1)
        second = self.bit(context)
        if size == 1:
            return 2 | second
        top = 4 | second << 1 | self.bit(context + 1 + second)
        return top << size - 2 | self.even(size - 2)

    def end(self):
        assert self._state == 2**16
        assert self._at == len(self._words)


def open_chunks(section, chunks, table):
    """Return the chunks of the events that a section ends with."""
    table = list(table)
    table[0] = 128
    replaced = section.take("H")
    gaps, changes = section.rice(replaced), section.rice(replaced)
    context = 0
    for gap, change in zip(gaps, changes, strict=True):
        context += gap + 1
        table[context] += -(change + 1) // 2 if change & 1 else change // 2 + 1
    counts = section.rice(chunks)
    words = section.take(f"{sum(counts)}H") if sum(counts) > 1 else ()
    assert section.is_used_up
    ends = np.cumsum(counts).tolist()
    return [Chunk(words[end - n : end], table) for n, end in zip(counts, ends, strict=True)]


def in_chunks(count, size):
    return [range(first, min(first + size, count)) for first in range(0, count, size)]


# Octree

OCCUPANCY_KINDS = 6
ONLY_CHILD = 1
ONLY_X = ONLY_CHILD + 16 * 4 * 7 * 5
ONLY_Y = ONLY_X + 4 * 4 * 2 * 4
ONLY_Z = ONLY_Y + 4 * 4 * 2 * 4 * 3
CHILDREN = ONLY_Z + 133 * 4 * 4
OCCUPANCY_CONTEXTS = CHILDREN + 8 * 27 * 3 * 32
REPEATED = 1
REPEATED_AGAIN = REPEATED + 16 * 3 * 4
REPEATS = REPEATED_AGAIN + 16


def cell_of(code):
    """Return the cell (x, y, z) of a Morton code."""
    return [sum((code >> 3 * bit + axis & 1) << bit for bit in range(21)) for axis in range(3)]


def read_beams(section):
    """Return slopes in 2**-20, heights in 1/512 of a cell, and None or the three rows of knots."""
    if section.is_used_up:
        return None
    count = section.leb128()
    slopes, heights = (np.cumsum([section.folded() for _ in range(count)]) for _ in range(2))
    knots = None
    if section.leb128():
        knots = [[finer * section.folded() for _ in range(17)] for finer in (8, 16, 16)]
    assert section.is_used_up
    return [8 * int(a) for a in slopes], [16 * int(b) for b in heights], knots


def half_octaves(square):
    return (square | 1).bit_length() - 1


def diamond_angle(x, y):
    ax, ay = abs(x), abs(y)
    shift = max((ax + ay).bit_length() - 20, 0)
    total = ax + ay >> shift
    if total == 0:
        return 0
    part = ((ay if (x < 0) == (y < 0) else ax) >> shift << 12) // total
    quadrant = (2 if x < 0 else 3) if y < 0 else (1 if x < 0 else 0)
    return quadrant << 12 | min(part, 4095)


def describe_beams(beams, centre, size_bits, hint):
    """Return what beams tell of a node, and the nearest of them."""
    slopes, heights, knots = beams
    x, y, z = centre
    rho = int(np.sqrt(x * x + y * y))
    while rho * rho > x * x + y * y:
        rho -= 1
    while (rho + 1) ** 2 <= x * x + y * y:
        rho += 1
    tilt, target, distance = 0, z << 8, rho << 8
    if knots:
        azimuth = diamond_angle(-x, -y)
        knot, part = azimuth >> 10, azimuth & 1023
        tilt, offset, shift = (
            row[knot] + ((row[knot + 1] - row[knot]) * part >> 10) for row in knots
        )
        target -= offset + (tilt * rho >> 12)
        distance += shift

    def above_centre(beam):
        return (slopes[beam] * distance >> 20) + heights[beam] - target

    nearest, last = min(hint, len(slopes) - 1), len(slopes) - 1
    while above_centre(nearest) < 0 and nearest < last:
        if above_centre(nearest + 1) > -above_centre(nearest):
            break
        nearest += 1
    while above_centre(nearest) > 0 and nearest > 0:
        if -above_centre(nearest - 1) > above_centre(nearest):
            break
        nearest -= 1
    height, unit = above_centre(nearest), size_bits + 2
    above = below = 255
    if nearest < last:
        above = clamp(above_centre(nearest + 1) - height >> unit, 0, 255)
    if nearest > 0:
        below = clamp(height - above_centre(nearest - 1) >> unit, 0, 255)
    height >>= unit
    slope = slopes[nearest] + tilt
    short = max(rho.bit_length() - 16, 0)
    reciprocal = 0xFFFFFFFF // max(rho >> short, 1)
    rises = [slope * ((v >> short) * reciprocal >> 22) >> 26 for v in (x, y)]
    if len(slopes) > 1:
        reach = 32 + abs(rises[0]) + abs(rises[1])
        passing = (abs(height) < reach) + (above < 255 and abs(height + above) < reach)
        passing += below < 255 and abs(height - below) < reach
    else:
        passing = sum(abs(height) < reach for reach in (16, 32, 64))
    told = {
        "height": clamp(height, -127, 127),
        "above": above,
        "below": below,
        "rises": [clamp(rise, -127, 127) for rise in rises],
        "steepness": min(abs(slope) >> 17, 3),
        "passing": passing,
        "scale": clamp(22 + 2 * size_bits - half_octaves(x * x + y * y), 0, 15),
    }
    return told, nearest


def nearest_beam(height, told):
    nearest = height
    for other in (height + told["above"], height - told["below"]):
        if abs(other) < abs(nearest):
            nearest = other
    return nearest


def decode_node(chunk, faces, chain, place, bits, scale, sensor, told):
    """Return the occupancy byte of a node; faces: -x +x -y +y -z +z, 0 or 1."""
    passing = 1 + told["passing"] if sensor else 0
    context = ((scale * 4 + chain) * 7 + sum(faces)) * 5 + passing
    if chunk.bit(ONLY_CHILD + context):
        return 1 << decode_only_child(chunk, faces, place, min(bits - 1, 3), sensor, told)
    return decode_children(chunk, faces, scale, sensor, told)


def decode_only_child(chunk, faces, place, level, sensor, told):
    along = [faces[2 * axis] + 2 * faces[2 * axis + 1] for axis in range(3)]
    beside = min(sum(faces[2:]), 3)
    x = chunk.bit(ONLY_X + ((along[0] * 4 + level) * 2 + (place & 1)) * 4 + beside)
    towards = 0
    if along[0] in (1, 2):
        towards = 1 if (along[0] == 1) == (x == 0) else 2
    beside = min(sum(faces[:2] + faces[4:]), 3)
    context = ((along[1] * 4 + level) * 2 + (place >> 1 & 1)) * 4 + beside
    y = chunk.bit(ONLY_Y + context * 3 + towards)
    beam = 0
    if sensor:
        rise_x, rise_y = told["rises"]
        height = told["height"] + (rise_x if x else -rise_x) + (rise_y if y else -rise_y)
        height = nearest_beam(height, told)
        beam = 1 + clamp(height + 66 >> 2, 0, 32) * 4 + told["steepness"]
    return x | y << 1 | chunk.bit(ONLY_Z + (beam * 4 + along[2]) * 4 + level) << 2


def decode_children(chunk, faces, scale, sensor, told):
    coded = count = 0
    for child in range(8):
        if child == 6 + count:
            return coded | 0xFF << child & 0xFF
        x, y, z = child & 1, child >> 1 & 1, child >> 2
        touching = faces[x] * 4 + faces[2 + y] * 2 + faces[4 + z]
        siblings = 0
        for upper, mask in ((x, 1), (y, 2), (z, 4)):
            siblings = 3 * siblings + (1 + (coded >> (child ^ mask) & 1) if upper else 0)
        place = scale
        if sensor:
            rise_x, rise_y = told["rises"]
            height = told["height"] + (rise_x if x else -rise_x) + (rise_y if y else -rise_y)
            off = abs(nearest_beam(height + (-16 if z else 16), told))
            if sensor == 1:
                place = clamp(quotient(scale - 3, 3), 0, 3) * 8 + min(off // 5, 7)
            else:
                place = scale * 4 + min(off // 8, 3)
        context = ((touching * 27 + siblings) * 3 + min(count, 2)) * 32 + place
        bit = chunk.bit(CHILDREN + context)
        coded |= bit << child
        count += bit
    return coded


def decode_occupancy(section, header, beams):
    """Return the Morton codes of the cells."""
    cells, depth, origin = header["cells"], header["depth"], header["origin"]
    if cells == 0 or depth == 0:
        assert section.is_used_up
        return [0] * cells
    chunk_nodes = 1 << section.take("B")
    sizes = [1, *(section.leb128() for _ in range(depth - 1)), cells]
    sensor = 0 if beams is None else 1 if len(beams[0]) > 1 else 2
    kind = 2 * sensor + (depth > 2 and 5 * sizes[-4] > 4 * sizes[-1])
    per_level = [len(in_chunks(size, chunk_nodes)) for size in sizes[:-1]]
    table = table_of("octree_occupancy", kind, OCCUPANCY_KINDS)
    chunks = iter(open_chunks(section, sum(per_level), table))
    # A node: its code, face neighbours (places in the level), chain of only children, beam.
    nodes = [(0, [None] * 6, 0, 0)]
    for level in range(depth):
        assert len(nodes) == sizes[level]
        bits, occupancy, beam_of = depth - level, [], []
        for nodes_of_chunk in in_chunks(len(nodes), chunk_nodes):
            chunk = next(chunks)
            for code, neighbours, chain, beam in (nodes[i] for i in nodes_of_chunk):
                told, scale = None, min(bits - 1, 7)
                if sensor:
                    cell = cell_of(code)
                    centre = [
                        2 * first + (2 * k + 1 << bits) - 1
                        for first, k in zip(origin, cell, strict=True)
                    ]
                    told, beam = describe_beams(beams, centre, bits + 1, beam)
                    scale = told["scale"] if sensor == 1 else scale
                beam_of.append(beam)
                faces = [int(near is not None) for near in neighbours]
                byte = decode_node(chunk, faces, chain, code & 7, bits, scale, sensor, told)
                occupancy.append(byte)
            chunk.end()
        nodes = children_of(nodes, occupancy, beam_of)
    assert len(nodes) == cells
    return [code for code, *_ in nodes]


def children_of(nodes, occupancy, beam_of):
    """Return the nodes of the next level."""
    first = [0, *np.cumsum([byte.bit_count() for byte in occupancy]).tolist()]

    def place_of(node, child):
        """Return where a node's child is in the next level; None if there is none."""
        if node is None or not occupancy[node] >> child & 1:
            return None
        return first[node] + (occupancy[node] & (1 << child) - 1).bit_count()

    children = []
    for i, (code, neighbours, chain, _) in enumerate(nodes):
        chain = min(chain + 1, 3) if occupancy[i].bit_count() == 1 else 0
        for child in range(8):
            if not occupancy[i] >> child & 1:
                continue
            near = [None] * 6
            for axis in range(3):
                mirrored, upper = child ^ 1 << axis, child >> axis & 1
                near[2 * axis + upper] = place_of(neighbours[2 * axis + upper], mirrored)
                near[2 * axis + 1 - upper] = place_of(i, mirrored)
            children.append((code << 3 | child, near, chain, beam_of[i]))
    return children


def decode_multiplicity(section, codes, header, has_beams):
    """Return the points of each cell."""
    points, origin = header["points"] - header["nonfinite"], header["origin"]
    if points == len(codes):
        assert section.is_used_up
        return [1] * len(codes)
    multiplicity = []
    parts = in_chunks(len(codes), 4096)
    chunks = open_chunks(section, len(parts), table_of("octree_multiplicity"))
    for chunk, cells in zip(chunks, parts, strict=True):
        before = 0
        for i in cells:
            parent = codes[i] >> 3
            crowd = int(i > 0 and codes[i - 1] >> 3 == parent)
            crowd += 2 * (i + 1 < len(codes) and codes[i + 1] >> 3 == parent)
            distance = 0
            if has_beams:
                x, y, _ = cell_of(codes[i])
                x, y = x + origin[0], y + origin[1]
                distance = clamp(half_octaves(x * x + y * y) - 11, 0, 15)
            more = chunk.bit(REPEATED + (distance * 3 + before) * 4 + crowd)
            if more:
                more += chunk.bit(REPEATED_AGAIN + distance)
            before = more
            if more == 2:
                more += chunk.unsigned(REPEATS)
            multiplicity.append(1 + more)
        chunk.end()
    assert sum(multiplicity) == points
    return multiplicity


# Scan order

NEAR, FAR_CLASSES, FAR_MANTISSAS, FRACTIONS = 4, 14, 12, 8
FAR = FAR_CLASSES + FAR_MANTISSAS
SCALE, COARSE_SCALE = NEAR * FRACTIONS + FAR, NEAR + FAR
ORIGIN_AT, MODEL_AT = 1, 5
RANGES_FINE, RANGES_COARSE, ACROSS, SLANTS, HEIGHTS = 6, 10, 12, 4, 12
PLACE_AT = MODEL_AT + 48 * (NEAR + FAR)
RANGE_AT = PLACE_AT + 3 * (NEAR + FAR)
ACROSS_AT = RANGE_AT + 4 * (RANGES_FINE * SCALE + RANGES_COARSE * COARSE_SCALE)
HEIGHT_AT = ACROSS_AT + SLANTS * ACROSS * SCALE
SPIN_CONTEXTS = HEIGHT_AT + HEIGHTS * SCALE
LINEAR_FINE, LINEAR_COARSE = 6, 8
LINEAR_LAST = LINEAR_FINE * SCALE + LINEAR_COARSE * COARSE_SCALE
RADIAN = 683565276
SPIN_LIMIT = 2**22


def read_lines(section, count, keys):
    """Return the coding order, and the line of each point in that order."""
    kind = section.take("B")
    if kind == 0:
        key = [0] * count
    elif kind == 1:
        lag = section.take("H")
        key = [i % lag for i in range(count)]
    else:
        key = keys[("ring", "row")[kind - 2]]
    assert section.is_used_up
    assert len(key) == count
    order = sorted(range(count), key=lambda i: key[i])
    ranks = {value: rank for rank, value in enumerate(sorted(set(key)))}
    return order, [ranks[key[i]] for i in order]


def scale_of(value, scales):
    scale = value
    if value >= 4:
        size = value.bit_length() - 1
        scale = 2 * size + (value >> size - 1 & 1)
    return min(scale, scales - 1)


def scale_base(scale, fine):
    return scale * SCALE if scale < fine else fine * SCALE + (scale - fine) * COARSE_SCALE


def decode_residual(chunk, near, far):
    if chunk.bit(near):
        return 0
    negative = chunk.bit(near + 1)
    if chunk.bit(near + 2):
        magnitude = 1
    elif chunk.bit(near + 3):
        magnitude = 2
    else:
        size = 0
        while size < 63 and chunk.bit(far + min(size, FAR_CLASSES - 1)):
            size += 1
        magnitude = 1
        if size:
            magnitude = 2 | chunk.bit(far + FAR_CLASSES + min(size, FAR_MANTISSAS) - 1)
            magnitude = magnitude << size - 1 | chunk.even(size - 1)
        magnitude += 2
    return -magnitude if negative else magnitude


def decode_cell(chunk, base, fine, predicted):
    nearest = predicted + 128 >> 8
    fraction = predicted - 256 * nearest
    position = min(abs(fraction) >> 4, FRACTIONS - 1)
    near = base + position * NEAR if fine else base
    residual = decode_residual(chunk, near, base + (FRACTIONS * NEAR if fine else NEAR))
    return nearest - residual if fraction < 0 else nearest + residual


def follow(average, value, shift):
    return average + (value - average >> shift)


def decode_linear(chunk, axes):
    """Return the next cell; an axis is [last, step, scale, still error, moving error]."""
    before, cell = 0, []
    for a, axis in enumerate(axes):
        last, step, scale_sum, still_error, moving_error = axis
        still, moving = 16 * last, 16 * last + step
        expected = still if still_error <= moving_error else moving
        scale = scale_of(scale_sum >> 2, LINEAR_FINE + LINEAR_COARSE)
        base = MODEL_AT + (4 * a + before) * LINEAR_LAST + scale_base(scale, LINEAR_FINE)
        value = i32(decode_cell(chunk, base, scale < LINEAR_FINE, 16 * expected))
        error, change = abs(16 * value - expected), value - last
        before = 0 if error < 12 else 1 if error < 40 else 2 if error < 160 else 3
        axis[0] = value
        axis[1] = follow(step, 16 * change, 1) if abs(change) < 64 else 0
        axis[2] = follow(scale_sum, min(error, 65536), 2)
        axis[3] = follow(still_error, min(abs(16 * value - still), 65536), 3)
        axis[4] = follow(moving_error, min(abs(16 * value - moving), 65536), 3)
        cell.append(value)
    return cell


SINES = [round(2**30 * np.sin(2 * np.pi * i / 4096)) for i in range(1025)]
SINES += SINES[-2:0:-1]
SINES += [-sine for sine in SINES]
SINES += SINES[:1026]


def direction_of(azimuth):
    """Return cosine and sine, 2**30 is 1."""
    i, part = azimuth >> 20, azimuth & 0xFFFFF
    return [SINES[k] + ((SINES[k + 1] - SINES[k]) * part >> 20) for k in (i + 1024, i)]


def read_spin(section, lines):
    """Return the lines, their beams and the parameters of the spin model."""
    starts = section.leb128()
    if starts:
        ends = np.cumsum([section.leb128() for _ in range(starts - 1)])
        lines = np.searchsorted(ends, np.arange(len(lines)), side="right").tolist()
    names = ["step", "usual", "repetition", "phase_gain", "step_gain", "flags"]
    told = dict(zip(names, section.take("iBBBBB"), strict=True))
    pose = [section.folded() for _ in range(10)] if told["flags"] & 2 else [0] * 10
    count, beams, slope = starts or max(lines) + 1, [], 0
    for _ in range(count):
        slope += section.folded()
        height = 16 * section.folded()
        beams.append((slope, height, 16 * section.folded() if told["flags"] & 1 else 0))
    return lines, beams, told | {"pose": pose}


class Spin:
    """The state of the spin model in a chunk; lengths in 1/256 of a cell."""

    def __init__(self, told):
        self.told = told
        self.azimuth = self.deviation = self.weight = 0
        self.since, self.was_unusual, self.multiples = 15, 0, [0] * 16
        # r: last value and step, smoothed value and step, and how well each did.
        self.last = self.step = self.smooth = self.smooth_step = 0
        self.last_error = self.smooth_error = 64
        self.range_scale = self.across_scale = self.height_scale = 64
        self.range_off = 0
        self.quick = self.slow = 0
        self.quick_error = self.slow_error = 64
        self.line = None

    def pose(self, azimuth):
        seam, x, y, dx, dy, dz, tilt_x, tilt_y, tilting_x, tilting_y = self.told["pose"]
        turned = i32(azimuth - seam - 2**31)
        return (
            x + (dx * turned >> 32),
            y + (dy * turned >> 32),
            dz * turned >> 32,
            tilt_x + (tilting_x * turned >> 32),
            tilt_y + (tilting_y * turned >> 32),
        )

    def decode_place(self, chunk, history):
        """Return the cell of a point where the sensor was, or None if it is elsewhere."""
        at_place = chunk.bit(ORIGIN_AT + history)
        if not at_place:
            return None
        step = self.told["step"] + (self.deviation >> 8)
        self.azimuth = u32(self.azimuth + self.told["usual"] * step)
        cell = []
        for a, place in enumerate(self.pose(self.azimuth)[:3]):
            base = PLACE_AT + a * (NEAR + FAR)
            cell.append(i32((place + 128 >> 8) + decode_residual(chunk, base, base + NEAR)))
        return cell

    def decode(self, chunk, line, beam):
        told = self.told
        slope, height, offset = beam
        step = told["step"] + (self.deviation >> 8)
        is_first = line != self.line
        if is_first:
            self.quick = self.slow = self.step = self.smooth_step = 0
            self.quick_error = self.slow_error = 64
            self.line = line
        multiple = self._decode_multiple(chunk)
        self.azimuth = u32(self.azimuth + multiple * step)
        c, s = direction_of(self.azimuth)
        pose = self.pose(self.azimuth)
        x, y, expected = self._decode_plane(chunk, c, s, pose, offset)
        from_x, from_y = 256 * x - pose[0], 256 * y - pose[1]
        beside = (c * from_y - s * from_x >> 30) - offset
        r = c * from_x + s * from_y >> 30
        if r > 256:
            self._follow_azimuth(beside, r, multiple, step)
        self.range_off = abs(r - expected)
        self.range_scale = min(self.range_scale + self.range_off >> 1, 65536)
        self._follow_range(r)
        cone = ((slope + (pose[3] * c + pose[4] * s >> 30)) * r >> 16) + height + pose[2]
        return [x, y, self._decode_height(chunk, cone, is_first)]

    def _decode_multiple(self, chunk):
        repetition, usual = self.told["repetition"], self.told["usual"]
        if repetition:
            circumstance = 32 + (self.multiples[repetition - 1] & 15)
        else:
            circumstance = 2 * self.since + self.was_unusual
        base = MODEL_AT + circumstance * (NEAR + FAR)
        residual = decode_residual(chunk, base, base + NEAR)
        self.was_unusual = int(residual != 0)
        self.multiples = [clamp(residual, -8, 7), *self.multiples[:15]]
        multiple = i64(residual + usual)
        if multiple & 1:
            self.since = 0 if multiple == 1 or self.since == 15 else 1
        else:
            self.since = clamp(self.since + clamp(multiple >> 1, -16, 16), 0, 15)
        return multiple

    def _decode_plane(self, chunk, c, s, pose, offset):
        """Return x, y and the r that was expected."""
        on_x = abs(c) >= abs(s)
        along_of_r, across_of_r = (c, s) if on_x else (s, c)
        along_offset = ((-s if on_x else c) * offset >> 30) + pose[0 if on_x else 1]
        across_offset = ((c if on_x else -s) * offset >> 30) + pose[1 if on_x else 0]
        sign = -1 if along_of_r < 0 else 1
        along_of_r, across_of_r = sign * along_of_r, sign * across_of_r
        along_offset, across_offset = sign * along_offset, sign * across_offset
        if self.last_error <= self.smooth_error:
            expected = self.last + self.step
        else:
            expected = self.smooth + self.smooth_step
        scale = scale_of(self.range_scale >> 5, RANGES_FINE + RANGES_COARSE)
        off = self.range_off
        last = 0 if off < 96 else 1 if off < 256 else 2 if off < 1024 else 3
        base = RANGE_AT + last * (RANGES_FINE * SCALE + RANGES_COARSE * COARSE_SCALE)
        base += scale_base(scale, RANGES_FINE)
        predicted = (expected * along_of_r >> 30) + along_offset
        along = decode_cell(chunk, base, scale < RANGES_FINE, predicted)
        along = clamp(along, -SPIN_LIMIT, SPIN_LIMIT)
        slant = quotient(across_of_r * 65536, along_of_r)
        scale = scale_of(self.across_scale * max(self.last, 256) >> 20, ACROSS)
        base = ACROSS_AT + (min(abs(slant) >> 14, SLANTS - 1) * ACROSS + scale) * SCALE
        predicted = ((256 * along - along_offset) * slant >> 16) + across_offset
        across = clamp(decode_cell(chunk, base, True, predicted), -SPIN_LIMIT, SPIN_LIMIT)
        along, across = sign * along, sign * across
        return (along, across, expected) if on_x else (across, along, expected)

    def _follow_azimuth(self, beside, r, multiple, step):
        told = self.told
        weight = min(r * r >> 16, 2**24) + 1
        self.weight = self.weight - (self.weight >> told["phase_gain"]) + weight
        tangent = clamp(quotient(beside * 2**30, r), -(2**30), 2**30)
        turn = quotient((tangent * RADIAN >> 30) * weight, self.weight)
        self.azimuth = u32(self.azimuth + turn)
        if 0 < multiple < 64:
            limit, more = 8 * abs(told["step"]), turn * 256 >> told["step_gain"]
            self.deviation = clamp(self.deviation + (-more if step < 0 else more), -limit, limit)
        self.across_scale = follow(self.across_scale, min(abs(tangent) >> 14, 4096), 3)

    def _follow_range(self, r):
        by_last = r - self.last - self.step
        by_smooth = r - self.smooth - self.smooth_step
        self.last_error = follow(self.last_error, min(abs(by_last), 4096), 4)
        self.smooth_error = follow(self.smooth_error, min(abs(by_smooth), 4096), 4)
        is_near = abs(by_last) < 24 * 256
        self.step = 5 * self.step + 3 * (r - self.last) >> 3 if is_near else 0
        if abs(by_smooth) < 8 * 256:
            self.smooth += self.smooth_step + (by_smooth >> 1)
            self.smooth_step += by_smooth >> 4
        else:
            self.smooth, self.smooth_step = r, 0
        self.last = r

    def _decode_height(self, chunk, cone, is_first):
        above = self.quick if self.quick_error < self.slow_error else self.slow
        scale = scale_of(self.height_scale >> 4, HEIGHTS)
        z = decode_cell(chunk, HEIGHT_AT + scale * SCALE, True, cone + above)
        z = clamp(z, -SPIN_LIMIT, SPIN_LIMIT)
        error = 256 * z - cone
        self.height_scale = follow(self.height_scale, min(abs(error - above), 2048), 3)
        self.quick_error = follow(self.quick_error, min(abs(error - self.quick), 2048), 4)
        self.slow_error = follow(self.slow_error, min(abs(error - self.slow), 2048), 4)
        if is_first:
            self.quick = self.slow = error
        self.quick = follow(self.quick, error, 2)
        self.slow = follow(self.slow, error, 4)
        return z


def decode_geometry(section, order, lines):
    """Return the cells of the points, (3, N), in the order of the cloud."""
    count = len(order)
    model = section.take("B")
    is_spin, has_origins = model & 1, model >> 1
    if is_spin:
        lines, beams, told = read_spin(section, lines)
    parts = in_chunks(count, 1024)
    chunks = open_chunks(section, len(parts), table_of("scan_spin" if is_spin else "scan_linear"))
    cells = np.zeros((count, 3), np.int64)
    for chunk, points in zip(chunks, parts, strict=True):
        spin, axes, history = is_spin and Spin(told), [[0, 0, 64, 64, 64] for _ in "xyz"], 0
        for i in points:
            cell = None
            if has_origins and is_spin:
                cell = spin.decode_place(chunk, history)
            elif has_origins:
                cell = [0, 0, 0] if chunk.bit(ORIGIN_AT + history) else None
            if has_origins:
                history = history << 1 & 3 | int(cell is not None)
            if cell is None and is_spin:
                cell = spin.decode(chunk, lines[i], beams[lines[i]])
            elif cell is None:
                cell = decode_linear(chunk, axes)
            cells[order[i]] = cell
        chunk.end()
    return cells.T


# Fields

SPREADS, LEVELS, NEARS, CLASS_CONTEXTS = 19, 8, 4, 8
SIGNS_AT = 1 + SPREADS * LEVELS * NEARS * CLASS_CONTEXTS
MANTISSAS_AT = SIGNS_AT + 2 * SPREADS * LEVELS * 3
CYCLES_AT = MANTISSAS_AT + 2 * 3 * 14
PREVIOUS, MEAN, LINEAR, NEAREST, CYCLE = range(5)


def find_neighbours(cells):
    """Return for each point near (1 to 3, 0 without neighbours) and its (place, weight)s."""
    found = []
    for part in in_chunks(cells.shape[1], 2048):
        chunk = cells[:, part.start : part.stop]
        lowest = chunk.min(axis=1)
        excess = max(int((chunk.max(axis=1) - lowest).max()).bit_length() - 21, 0)
        places = (chunk - lowest[:, None] >> excess).T.tolist()
        for i, (x, y, z) in enumerate(places):
            distances = sorted(
                (abs(x - other[0]) + abs(y - other[1]) + abs(z - other[2]), back)
                for back, other in enumerate(reversed(places[max(i - 32, 0) : i]), 1)
            )[:3]
            near = 1 + (distances[0][0] < 20) + (distances[0][0] < 5) if distances else 0
            weighted = zip(distances, weights_of(distances), strict=True)
            at = part.start + i
            found.append((near, [(at - back, weight) for (_, back), weight in weighted if weight]))
    return found


def weights_of(distances):
    sizes = []
    for distance, _ in distances:
        exponent = (1 + distance).bit_length() - 1
        sizes.append(2 * exponent + (2 * (1 + distance) >= 3 << exponent))
    weights = [(128, 91, 64, 45, 32, *[0] * 50)[size - sizes[0]] for size in sizes]
    return [weight * (16384 // sum(weights)) >> 7 for weight in weights]


def decode_attribute_residual(chunk, spread, near, sense, predicted):
    bits = spread.bit_length()
    if bits < 2:
        size = bits
    elif bits < 7:
        size = 2 * bits - 2 + (spread >> bits - 2 & 1)
    else:
        size = min(bits + 5, SPREADS - 1)
    level = min(predicted.bit_length(), LEVELS - 1) if predicted > 0 else 0
    cell = size * LEVELS + level
    base = 1 + (cell * NEARS + near) * CLASS_CONTEXTS
    expected = max(bits - 2, 0)
    wanted, steps = expected, 0
    if expected > 0 and chunk.bit(base):
        wanted -= 1
        while wanted > 0 and not chunk.bit(base + 1 + min(steps, 2)):
            wanted -= 1
            steps += 1
    else:
        while wanted < 64 and not chunk.bit(base + 4 + min(steps, 3)):
            wanted += 1
            steps += 1
    if wanted == 0:
        return 0
    is_along = int(near == 0)
    negative = chunk.bit(SIGNS_AT + 3 * (is_along * SPREADS * LEVELS + cell) + sense)
    magnitude, rest = 1, wanted - 1
    if rest:
        context = MANTISSAS_AT + 3 * (14 * is_along + min(rest, 14) - 1)
        second = chunk.bit(context)
        magnitude, rest = 2 | second, rest - 1
        if rest:
            magnitude, rest = magnitude << 1 | chunk.bit(context + 1 + second), rest - 1
    magnitude = magnitude << rest | chunk.even(rest)
    return -magnitude if negative else magnitude


def sense_of(a, b):
    return 1 + (a > b) - (a < b)


def distance_of(a, b):
    return abs(a - b)


def decode_attribute(section, count, cells):
    """Return a sequence of integers."""
    predictor = section.take("B")
    parts = in_chunks(count, 2048)
    if predictor == CYCLE:
        places = section.take("B") + 1
        cycle = [section.take("B") for _ in range(places)]
        chunks = open_chunks(section, len(parts), table_of("attributes"))
        return [
            cycle[place]
            for chunk, part in zip(chunks, parts, strict=True)
            for place in decode_cycle(chunk, len(part), places)
        ]
    centre = section.take("q")
    neighbours = find_neighbours(cells) if predictor == NEAREST else None
    values = []
    chunks = open_chunks(section, len(parts), table_of("attributes"))
    for chunk, part in zip(chunks, parts, strict=True):
        a = b = c = centre
        last = before = 0
        for i in part:
            near = 0
            if neighbours:
                near, weights = neighbours[i]
            if near:
                first = values[weights[0][0]]
                total = sum(weight * (values[j] - first) for j, weight in weights[1:])
                predicted = i64(first + (i64(total + 64) >> 7))
                spread = sum(w * distance_of(values[j], predicted) for j, w in weights)
                spread, sense = u64(spread) >> 6, sense_of(first, predicted)
            else:
                step = i64(a - b)
                predicted = a
                if predictor == MEAN:
                    predicted = i64(b + (i64(step + 1) >> 1))
                elif predictor == LINEAR:
                    predicted = i64(a + step)
                spread, sense = 2 * distance_of(a, b) + distance_of(b, c), sense_of(a, b)
            spread = u64(spread + last + before)
            residual = decode_attribute_residual(chunk, spread, near, sense, predicted)
            a, b, c = i64(predicted + residual), a, b
            last, before = abs(residual), last
            values.append(a)
        chunk.end()
    return values


def decode_cycle(chunk, count, places):
    """Return the places of a chunk's values in the cycle."""
    found, rounds, place, is_there = [], [0] * places, 0, 1
    for _ in range(count):
        for steps in range(1, places + 1):
            place = (place + 1) % places
            after = rounds[(place + 1) % places]
            context = CYCLES_AT + (rounds[place] & 7) + 8 * is_there + 16 * (after & 1)
            is_there = 1 if steps == places else chunk.bit(context)
            rounds[place] = rounds[place] << 1 & 255 | is_there
            if is_there:
                break
        found.append(place)
    chunk.end()
    return found


def read_palette(section, is_bent):
    size = section.leb128()
    numbers, gap = [section.folded()], 0
    for _ in range(size - 1):
        gap = gap + section.folded() if is_bent else section.leb128()
        numbers.append(i64(numbers[-1] + gap))
    return numbers


def read_elevations(section):
    count = section.leb128()
    begins = np.cumsum([section.leb128() for _ in range(count)]) - 2**15
    values = np.cumsum([section.folded() for _ in range(count)])
    return begins, values


def read_basis(section, cells):
    """Return what a basis tells of each point."""
    kind = section.take("B")
    x, y, z = cells.astype(np.float64)
    r = np.sqrt(x * x + y * y)

    def by_elevation():
        begins, values = read_elevations(section)
        e = np.clip(np.floor(2048 * z / np.maximum(r, 1)), -(2**15), 2**15)
        return values[np.maximum(np.searchsorted(begins, e, side="right") - 1, 0)]

    if kind == 0:
        return np.zeros(cells.shape[1], np.int64)
    if kind == 1:
        return by_elevation()
    if kind == 2:
        return np.floor(np.sqrt(x * x + y * y + z * z) * section.take("d")).astype(np.int64)
    bends = np.array([section.folded() for _ in range(130)])
    nodes = np.cumsum(np.cumsum(bends))
    t = np.floor(1024 * y / np.maximum(np.abs(x) + np.abs(y), 1)).astype(np.int64)
    a = np.where(x >= 0, t + 1024, 3072 - t)
    k = a >> 5
    by_azimuth = 32 * nodes[k] + (nodes[k + 1] - nodes[k]) * (a & 31) >> 5
    return by_azimuth + by_elevation() >> 4


def read_head(section):
    """Return what a sequence's head says; its form is 0 affine, 1 and 2 palettes, 3 constant."""
    head = {"kind": section.take("B"), "scale": 1}
    if head["kind"] == 1:
        head["divisor"] = section.leb128()
    elif head["kind"] == 3:
        head["step"] = section.take("d")
    head["form"] = section.take("B")
    if head["form"] in (1, 2):
        head["palette"] = read_palette(section, head["form"] == 2)
    else:
        head["base"] = section.folded()
    if head["form"] == 0:
        head["scale"] = section.leb128()
    return head


def decode_sequence(section, dtype, count, order, cells):
    """Return the values of a sequence, of a native type, in the order of the cloud."""
    head = read_head(section)
    if head["form"] == 3:
        integers = [0] * count
    elif section.take("B") == 1:
        integers = decode_attribute(section, count, None)
    else:
        basis = np.zeros(count, np.int64) if cells is None else read_basis(section, cells)
        ordered = decode_attribute(section, count, cells)
        ordered = [i64(q + told) for q, told in zip(ordered, basis.tolist(), strict=True)]
        integers = [0] * count
        for i, point in enumerate(range(count) if order is None else order):
            integers[point] = ordered[i]
    assert section.is_used_up
    if "palette" in head:
        numbers = [head["palette"][q] for q in integers]
    else:
        numbers = [i64(head["base"] + head["scale"] * q) for q in integers]
    return to_values(np.array(numbers, np.int64), dtype, head)


def to_values(numbers, dtype, head):
    if head["kind"] == 0:
        return numbers.astype(dtype)
    if head["kind"] == 1:
        return (numbers / np.float64(head["divisor"])).astype(dtype)
    if head["kind"] == 3 and dtype.kind == "f":
        return (numbers * np.float64(head["step"])).astype(dtype)
    if head["kind"] == 3:
        limits = np.iinfo(dtype)
        multiples = np.rint(numbers * np.float64(head["step"]))
        return np.clip(multiples, limits.min, limits.max).astype(dtype)
    bits = numbers.astype(f"i{dtype.itemsize}")
    highest = 2 ** (8 * dtype.itemsize - 1) - 1
    return np.where(bits < 0, bits ^ bits.dtype.type(highest), bits).view(dtype)


def decode_field(name, section, field, count, order, cells):
    """Return a field's column, unsigned bits of the native byte order."""
    native = field.base.newbyteorder("=")
    unsigned = f"u{native.itemsize}"
    if count == 0:
        return np.zeros((0, *field.shape), unsigned)
    is_colour = not field.shape and native.itemsize == 4
    is_colour &= name.lower() in ("rgb", "rgba", "bgr", "bgra")
    parts = [
        decode_sequence(
            section.rest(section.leb128()),
            np.dtype(np.int64) if is_colour else native,
            count,
            order,
            cells,
        )
        for _ in range(4 if is_colour else field.shape[0] if field.shape else 1)
    ]
    assert section.is_used_up
    if is_colour:
        green, blue, red, rest = parts
        bits = blue + green & 255 | (green & 255) << 8 | (red + green & 255) << 16 | rest << 24
        return bits.astype(unsigned)
    columns = [part.view(unsigned) for part in parts]
    return np.stack(columns, axis=1) if field.shape else columns[0]


def decode_nonfinite(section, count, points, dtype, names, has_mask):
    """Return the mask of these points, and their fields' unsigned bits by name."""
    mask = np.zeros(points, bool)
    if count == 0:
        assert section.is_used_up
        return mask, {}
    content = Bytes(zstandard.ZstdDecompressor().decompress(section.content))
    if has_mask:
        for i in range(0, points, 8):
            byte = content.take("B")
            mask[i : i + 8] = [byte >> bit & 1 for bit in range(min(8, points - i))]
        assert mask.sum() == count
    columns = {}
    for name in names:
        size = dtype[name].base.itemsize
        values = count * dtype[name].itemsize // size
        planes = [content.rest(values).content for _ in range(size)]
        bits = sum(
            np.frombuffer(plane, np.uint8).astype("u8") << np.uint64(8 * i)
            for i, plane in enumerate(planes)
        )
        columns[name] = bits.astype(f"u{size}").reshape(count, *dtype[name].shape)
    assert content.is_used_up
    return mask, columns


# Clouds


def put(points, name, where, bits):
    """Set a field of some points to unsigned bits, whatever its type and byte order."""
    base = points.dtype[name].base
    points[name].view(f"{base.str[0].replace('|', '=')}u{base.itemsize}")[where] = bits


def centres_of(header, dtype, axis, cells):
    """Return coordinates as bits, of cells relative to the origin."""
    name = "xyz"[axis]
    native = dtype[name].newbyteorder("=")
    centres = (np.array(cells, np.int64) + header["origin"][axis]) * np.float64(header["step"])
    return centres.astype(native).view(f"u{native.itemsize}")


def decode_octree(header, dtype, sections):
    finite = header["points"] - header["nonfinite"]
    beams = read_beams(sections["beams"])
    codes = decode_occupancy(sections["occupancy"], header, beams)
    multiplicity = decode_multiplicity(sections["multiplicity"], codes, header, beams is not None)
    cells = np.array([cell_of(code) for code in codes], np.int64).reshape(-1, 3)
    cells = np.repeat(cells, multiplicity, axis=0).T
    points = np.zeros(header["points"], dtype)
    for axis, name in enumerate("xyz"):
        put(points, name, slice(finite), centres_of(header, dtype, axis, cells[axis]))
    places = cells + np.array(header["origin"])[:, None]
    for name in dtype.names:
        if name not in ("x", "y", "z"):
            section = sections[f"field {name}"]
            bits = decode_field(name, section, dtype[name], finite, None, places)
            put(points, name, slice(finite), bits)
    _, rest = decode_nonfinite(
        sections["nonfinite"], header["nonfinite"], header["points"], dtype, dtype.names, False
    )
    for name, bits in rest.items():
        put(points, name, slice(finite, None), bits)
    return points


def decode_scan(header, dtype, sections):
    count, is_lossless = header["points"], header["mode"] == LOSSLESS
    mask, rest = np.zeros(count, bool), {}
    if not is_lossless:
        mask, rest = decode_nonfinite(
            sections["nonfinite"], header["nonfinite"], count, dtype, "xyz", True
        )
    finite, others = np.flatnonzero(~mask), np.flatnonzero(mask)
    # The field that lines go by comes first.
    key, keys, columns = sections["lines"].content[0], {}, {}
    if key >= 2:
        name = ("ring", "row")[key - 2]
        field = dtype[name].newbyteorder("=")
        bits = decode_field(name, sections[f"field {name}"], dtype[name], count, None, None)
        columns[name] = bits
        keys[name] = [int(value) for value in bits.view(field)[finite]]
    order, lines = read_lines(sections["lines"], len(finite), keys)
    points = np.zeros(count, dtype)
    places = None
    if not is_lossless:
        cells = decode_geometry(sections["geometry"], order, lines)
        for axis, name in enumerate("xyz"):
            put(points, name, finite, centres_of(header, dtype, axis, cells[axis]))
            if len(others):
                put(points, name, others, rest[name])
        places = np.pad(cells[:, order], ((0, 0), (0, len(others))))
    order = [*finite[order], *others]
    for name in dtype.names:
        if not is_lossless and name in ("x", "y", "z"):
            continue
        if name not in columns:
            section = sections[f"field {name}"]
            columns[name] = decode_field(name, section, dtype[name], count, order, places)
        put(points, name, slice(None), columns[name])
    return points


def decode(data):
    """Return the points of a stream and their height."""
    header, dtype, sections = unpack(data)
    decode_mode = decode_octree if header["mode"] == OCTREE else decode_scan
    return decode_mode(header, dtype, sections), header["height"]
