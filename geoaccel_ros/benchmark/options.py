"""Values of options that benchmarks share."""

import argparse


def positive_int(text: str) -> int:
    """Return a whole number of at least 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return value


def positive_float(text: str) -> float:
    """Return a finite number above 0."""
    value = float(text)
    if not 0.0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return value


def add_backend(parser: argparse.ArgumentParser) -> None:
    """Add ``--backend``, whose values run beside each other."""
    parser.add_argument(
        "--backend",
        choices=("auto", "cpu", "cuda"),
        nargs="+",
        default=["auto"],
        help="our own contenders (default: auto)",
    )
