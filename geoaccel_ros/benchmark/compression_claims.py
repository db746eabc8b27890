"""What the codec claims beside its peers, and whether a run's rows hold it."""

from collections.abc import Sequence
from dataclasses import dataclass

from geoaccel_ros.benchmark.compression_cloudini import CLOUDINI
from geoaccel_ros.benchmark.compression_clouds import (
    INTENSITY,
    KITTI,
    MESSAGE,
    SPINNING,
    TIMED,
    XYZ,
)
from geoaccel_ros.benchmark.compression_contenders import MODES, OCTREE, SCAN
from geoaccel_ros.benchmark.compression_peers import DRACO, LAZ, ZSTD_OF_BYTES, ZSTD_OF_CELLS
from geoaccel_ros.benchmark.report import Table


@dataclass(frozen=True)
class Claim:
    """A ratio of our bits to a peer's.

    Attributes
    ----------
    ours : tuple of str
        Our contenders, the best of which counts.
    peers : tuple of str
        The peers, the best of which counts; empty: all.
    kind : str
        Of which clouds.
    case : str
    step_m : float
    must, aim : float
        Largest ratio.
    """

    ours: tuple[str, ...]
    peers: tuple[str, ...]
    kind: str
    case: str
    step_m: float
    must: float
    aim: float


_MESSAGE_PEERS = (CLOUDINI.name, ZSTD_OF_CELLS, ZSTD_OF_BYTES)
CLAIMS = (
    Claim((OCTREE,), (DRACO,), SPINNING, XYZ, 0.01, 0.95, 0.83),
    Claim((OCTREE,), (DRACO,), SPINNING, XYZ, 0.02, 0.94, 0.80),
    Claim((SCAN,), (LAZ,), KITTI, XYZ, 0.01, 1.10, 0.98),
    Claim(MODES, (), KITTI, INTENSITY, 0.01, 1.05, 0.93),
    Claim(MODES, _MESSAGE_PEERS, TIMED, MESSAGE, 0.01, 0.95, 0.75),
)
# Milliseconds to encode and to decode a KITTI scan on two cores by PoCL.
MUST_MS, AIM_MS = (60.0, 60.0), (30.0, 25.0)


def best_peers(rows: Sequence[dict]) -> Table:
    """Return, for each cloud, case and step, our fewest bits a point beside the peers' fewest."""
    result = []
    for group in _groups(rows).values():
        ours, theirs = _best(group, MODES), _best(group, ())
        if ours is None or theirs is None:
            continue
        result.append(_beside(ours, theirs))
    return Table("Ours beside the best peer", result, "Ratios below 1 are ours.")


def claims(rows: Sequence[dict], kinds: dict[str, frozenset[str]]) -> Table:
    """Return each claim for each cloud that it is about.

    Parameters
    ----------
    rows : sequence of dict
        Of the benchmark.
    kinds : dict of frozenset of str
        By the cloud's name.
    """
    result = []
    groups = _groups(rows)
    for claim in CLAIMS:
        for (cloud, case, step), group in groups.items():
            if (case, step) != (claim.case, claim.step_m) or claim.kind not in kinds[cloud]:
                continue
            ours, theirs = _best(group, claim.ours), _best(group, claim.peers)
            if ours is None or theirs is None:
                continue
            row = _beside(ours, theirs)
            result.append(
                row
                | {
                    "must": claim.must,
                    "aim": claim.aim,
                    "held": held(row["ratio"], claim.must, claim.aim),
                }
            )
    note = "Ratios of bits a point, ours to the best of the peers that a claim names."
    return Table("Claims on size", result, note)


def claims_on_time(rows: Sequence[dict], kinds: dict[str, frozenset[str]], device: str) -> Table:
    """Return what encoding and decoding KITTI scans takes at 1 cm beside what was claimed."""
    result = []
    for row in rows:
        if KITTI not in kinds[row["cloud"]] or row["step_m"] != 0.01:
            continue
        if row["contender"] not in MODES:
            continue
        for name, must, aim in zip(("encode_ms", "decode_ms"), MUST_MS, AIM_MS, strict=True):
            result.append(
                {
                    "cloud": row["cloud"],
                    "case": row["case"],
                    "ours": row["contender"],
                    "what": name.replace("_", " "),
                    "ms": row[name],
                    "must": must,
                    "aim": aim,
                    "held": held(row[name]["median"], must, aim),
                }
            )
    note = f"Claimed of two cores by PoCL; measured on {device}."
    return Table("Claims on time", result, note)


def _beside(ours: dict, theirs: dict) -> dict:
    """Return what one of our rows and a peer's of the same cloud come to."""
    return {
        "cloud": ours["cloud"],
        "case": ours["case"],
        "step_m": ours["step_m"],
        "ours": ours["contender"],
        "bits_per_point": ours["bits_per_point"],
        "best_peer": theirs["contender"],
        "its_bits_per_point": theirs["bits_per_point"],
        "ratio": ours["bits_per_point"] / theirs["bits_per_point"],
    }


def _groups(rows: Sequence[dict]) -> dict[tuple[str, str, float], list[dict]]:
    groups: dict[tuple[str, str, float], list[dict]] = {}
    for row in rows:
        groups.setdefault((row["cloud"], row["case"], row["step_m"]), []).append(row)
    return groups


def _best(group: Sequence[dict], names: Sequence[str]) -> dict | None:
    """Return the row of fewest bits of some contenders; of all peers if none are named."""
    chosen = [
        row
        for row in group
        if (row["contender"] in names if names else row["contender"] not in MODES)
    ]
    return min(chosen, key=lambda row: row["bits_per_point"], default=None)


def held(value: float, must: float, aim: float) -> str:
    return "aim" if value <= aim else "must" if value <= must else "no"
