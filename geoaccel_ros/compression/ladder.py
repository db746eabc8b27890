"""What a stream of clouds gives up for its link, and in which order."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from geoaccel_ros.compression.codec import CodecConfig, EncodingConfig
from geoaccel_ros.compression.policies import COORDINATES, check_names
from geoaccel_ros.compression.rate_control import COARSEST_STEP, FINEST_STEP
from geoaccel_ros.config import ConfigurationError, parameter

# Steps of quantised fields are doubled until they are this many times what was asked for.
_COARSEST_FIELDS = 8


@dataclass(frozen=True)
class LinkConfig(EncodingConfig):
    """Parameters of encoding for a link."""

    target_bytes_per_s: float = parameter(
        0.0,
        "Bytes a second of the link: no 2 s carry more than twice that. Where clouds take more, "
        "'step' grows up to 'max_step', then the steps of quantised fields, points of one cell are "
        "merged (not in mode scan), fields in 'optional' dropped, then clouds; 0: no limit.",
        unit="B/s",
        minimum=0.0,
        maximum=1e12,
        live=True,
    )
    max_step: float = parameter(
        0.1,
        "Largest step that 'target_bytes_per_s' may choose.",
        unit="m",
        minimum=FINEST_STEP,
        maximum=COARSEST_STEP,
        live=True,
    )
    optional: tuple[str, ...] = parameter(
        (),
        "Fields that 'target_bytes_per_s' may drop, the first of them first.",
        live=True,
    )

    def __post_init__(self):
        super().__post_init__()
        if self.target_bytes_per_s and self.max_step < self.step:
            raise ConfigurationError(
                f"max_step ({self.max_step:g} m) is below step ({self.step:g} m): raise it, or "
                "leave target_bytes_per_s at 0"
            )
        check_names("optional", self.optional)
        for index, name in enumerate(self.optional):
            if name in COORDINATES or name in self.optional[:index]:
                wrong = "x, y or z" if name in COORDINATES else f"the field '{name}' twice"
                raise ConfigurationError(f"parameter 'optional' has {wrong}")


@dataclass(frozen=True)
class Rung:
    """One rung of the ladder.

    Attributes
    ----------
    step : float
        Metres.
    field_factor : int
        How many times the steps of quantised fields are what was asked for.
    is_merged : bool
        Whether points of one cell are merged.
    dropped : tuple of str
        Fields that are left out.
    """

    step: float
    field_factor: int = 1
    is_merged: bool = False
    dropped: tuple[str, ...] = ()

    def encoding(self, config: LinkConfig) -> CodecConfig:
        """Return the codec's parameters on this rung."""
        values = config.subset(EncodingConfig).as_dict()
        values["step"] = self.step
        values["lossless"] = [name for name in config.lossless if name not in self.dropped]
        values["quantise"] = [
            f"{name}={self.field_factor * step!r}"
            for name, step in config.steps().items()
            if name not in self.dropped
        ]
        if self.is_merged:
            values["duplicates"] = "merge"
        return CodecConfig(**values)


def ladder(config: LinkConfig) -> list[Rung]:
    """Return the rungs: the first is as asked for, and the only one where there is no target."""
    return list(_rungs(config)) if config.target_bytes_per_s else [Rung(config.step)]


def _rungs(config: LinkConfig) -> Iterator[Rung]:
    # A margin, so that a rounded logarithm does not make a rung that hardly differs.
    count = math.ceil(2 * math.log2(config.max_step / config.step) - 1e-6)
    for index in range(count):
        yield Rung(config.step * 2 ** (index / 2))
    rung = Rung(config.max_step)
    yield rung
    while config.quantise and rung.field_factor < _COARSEST_FIELDS:
        rung = replace(rung, field_factor=2 * rung.field_factor)
        yield rung
    if config.mode != "scan" and config.duplicates == "keep":
        rung = replace(rung, is_merged=True)
        yield rung
    for name in config.optional:
        rung = replace(rung, dropped=(*rung.dropped, name))
        yield rung
