"""Numbers as sentences and figures have them."""

from __future__ import annotations

from decimal import Decimal

_LEAST_PLAIN, _MOST_PLAIN = 1e-6, 1e15


def show_digits(value: float, digits: int = 3) -> str:
    """Returns a number with `digits` significant digits, but all those before the point.

    It has no exponent, so 1,235 is not "1.23e+03", unless it has more than 15 digits or is below
    a millionth.
    """
    size = abs(value)
    if 0 < size < _LEAST_PLAIN or size >= _MOST_PLAIN:
        return f"{value:.{digits}g}"
    if not size < 10**digits - 0.5:
        return f"{value:,.0f}"
    return f"{Decimal(f'{value:.{digits}g}'):,f}"


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Returns a number with its noun: "1 call", "1,234 calls". `plural`: None adds an s."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
