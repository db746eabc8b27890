"""What all parts of the registration benchmark share: conditions, and parameters of our runs."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from geoaccel_ros.benchmark.registration_problem import MAX_DISTANCE
from geoaccel_ros.benchmark.report import Table
from geoaccel_ros.registration import RegistrationConfig

ITERATIONS = 30


@dataclass(frozen=True)
class Conditions:
    """What was asked for, decided.

    Attributes
    ----------
    points : int
    backends : tuple of str
        Ours, of "cpu" and "cuda".
    threads, repetitions : int
    output : Path or None
        Folder for pictures.
    """

    points: int
    backends: tuple[str, ...]
    threads: int
    repetitions: int
    output: Path | None

    def picture(self, name: str) -> tuple[Path, ...]:
        """Return where a picture goes; nowhere if none are wanted."""
        return () if self.output is None else (self.output / f"registration_{name}.png",)


class Part(NamedTuple):
    """A table, and its pictures."""

    table: Table
    images: tuple[Path, ...] = ()


def fixed_iterations(
    backend: str, threads: int, iterations: int = ITERATIONS, **parameters
) -> RegistrationConfig:
    """Return our parameters for so many iterations whatever happens.

    Point to point and without the three-sigma step, as the peers work, but for ``parameters``.
    """
    values = {
        "method": "point_to_point",
        "max_distance": MAX_DISTANCE,
        "three_sigma": False,
        "max_iterations": iterations,
        "relative_change": 0.0,
        "least_step": 0.0,
        "backend": backend,
        "threads": threads,
    }
    return RegistrationConfig(**values | parameters)
