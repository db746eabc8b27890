"""Stamps as text, in seconds, and as whole nanoseconds: float64 holds no epoch's nanoseconds."""

from decimal import Decimal, InvalidOperation


def parse_stamp(text: str) -> int:
    """Return the nanoseconds of a text in seconds, such as 1635236489.123456789 or 1.0e-01.

    Raises
    ------
    ValueError
        If it is no finite number.
    """
    try:
        seconds = Decimal(text)
    except InvalidOperation:
        raise ValueError(f"'{text}' is no number of seconds") from None
    # Beyond what any clock shows, a power of ten that would fill the memory.
    if not seconds.is_finite() or abs(seconds) > Decimal(1e12):
        raise ValueError(f"'{text}' is no number of seconds")
    return int((seconds * 10**9).to_integral_value())


def format_stamp(stamp_ns: int) -> str:
    """Return nanoseconds as seconds with nine decimals."""
    seconds, nanoseconds = divmod(abs(stamp_ns), 10**9)
    return f"{'-' if stamp_ns < 0 else ''}{seconds}.{nanoseconds:09d}"
