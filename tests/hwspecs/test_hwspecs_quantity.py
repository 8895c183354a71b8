"""Quantities: exact prefixes, dimension checks, and messages a newcomer understands."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwspecs import InputError, format_quantity, parse_quantity

UNITS = ("byte", "byte/s", "FLOP", "FLOP/s", "Hz", "W", "s", "m", "m^2", "J", "J/FLOP", "J/byte")


@pytest.mark.parametrize(
    ("text", "unit", "expected"),
    [
        ("3.35 TB/s", "byte/s", 3.35e12),
        ("80 GB", "byte", 80e9),
        ("80GB", "byte", 80e9),
        ("40 MiB", "byte", 40 * 2**20),
        ("1 TiB", "byte", 2**40),
        ("80 gigabyte", "byte", 80e9),
        ("1.83 GHz", "Hz", 1.83e9),
        ("700 W", "W", 700.0),
        ("989.4 TFLOP/s", "FLOP/s", 989.4e12),
        ("989.4 TFLOPS", "FLOP/s", 989.4e12),
        ("1979 TOP/s", "FLOP/s", 1979e12),
        ("2 us", "s", 2e-6),
        ("2 µs", "s", 2e-6),
        ("1e-3 ms", "s", 1e-6),
        ("400 Gbit/s", "byte/s", 50e9),
        ("814 mm^2", "m^2", 814e-6),
        ("814 mm²", "m^2", 814e-6),
        ("1.5 pJ", "J", 1.5e-12),
        ("7 nm", "m", 7e-9),
        ("0.16 pJ/FLOP", "J/FLOP", 0.16e-12),
        ("0.16 pJ/OP", "J/FLOP", 0.16e-12),
        ("4 pJ/bit", "J/byte", 32e-12),
        ("32 pJ/byte", "J/byte", 32e-12),
        ("132", "1", 132.0),
    ],
)
def test_reads_what_people_write(text: str, unit: str, expected: float) -> None:
    assert parse_quantity(text, unit) == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize(
    ("text", "unit", "words"),
    [
        ("80", "byte", ["no unit", "80 GB"]),
        ("80 GB", "byte/s", ["GB", "wrong kind of unit", "3.35 TB/s"]),
        ("3 TFLOP", "FLOP/s", ["wrong kind of unit"]),
        ("5 GB", "s", ["wrong kind of unit", "2 us"]),
        ("80 gb", "byte", ["not a known unit", "did you mean GB"]),
        ("400 Gb/s", "byte/s", ["bits or bytes", "Gbit/s"]),
        ("400 Gbps", "byte/s", ["bits or bytes", "Gbit/s"]),
        ("-3 GB", "byte", ["-3 GB", "greater than zero"]),
        ("0 GB", "byte", ["greater than zero"]),
        ("nan GB", "byte", ["finite number"]),
        ("inf GB", "byte", ["finite number"]),
        ("1e999 GB", "byte", ["finite"]),
        ("1e-999 GB", "byte", ["greater than zero"]),
        ("1e1000000 GB", "byte", ["too large"]),
        ("", "byte", ["finite number"]),
        ("GB", "byte", ["finite number"]),
        ("1,000 GB", "byte", ["is not a unit"]),
        ("3 GB**9", "byte", ["is not a unit"]),
        ("3 __import__('os')", "byte", ["is not a unit"]),
        ("5 GB", "1", ["plain number"]),
        ("5 GB", "furlong", ["not a supported unit", "byte/s"]),
    ],
)
def test_refuses_with_a_sentence(text: str, unit: str, words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        parse_quantity(text, unit)
    message = str(caught.value)
    assert all(word in message for word in words), message
    assert "\n" not in message and message.endswith(".")


def test_a_number_is_not_a_quantity() -> None:
    with pytest.raises(InputError, match="not text with a unit"):
        parse_quantity(80, "byte")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (3.35e12, "byte/s", "3.35 TB/s"),
        (80e9, "byte", "80 GB"),
        (40 * 2.0**20, "byte", "40 MiB"),
        (512.0, "byte", "512 B"),
        (0.03, "s", "30 ms"),
        (2e-6, "s", "2 us"),
        (1200.0, "s", "1200 s"),
        (999999.0, "byte/s", "1 MB/s"),
        (989.4e12, "FLOP/s", "989.4 TFLOP/s"),
        (1.83e9, "Hz", "1.83 GHz"),
        (1400.0, "W", "1.4 kW"),
        (814e-6, "m^2", "814 mm^2"),
        (7e-9, "m", "7 nm"),
        (0.16e-12, "J/FLOP", "160 fJ/FLOP"),
        (32e-12, "J/byte", "32 pJ/B"),
        (132.0, "1", "132"),
        (0.0, "s", "0 s"),
        (math.nan, "s", "nan s"),
    ],
)
def test_prints_like_people_write(value: float, unit: str, text: str) -> None:
    assert format_quantity(value, unit) == text


@given(st.floats(1e-15, 1e20), st.sampled_from(UNITS))
def test_printed_quantities_read_back(value: float, unit: str) -> None:
    assert parse_quantity(format_quantity(value, unit), unit) == pytest.approx(value, rel=5.1e-4)


@given(st.floats(1e-12, 1e20), st.sampled_from(UNITS))
def test_more_digits_lose_less(value: float, unit: str) -> None:
    assert parse_quantity(format_quantity(value, unit, digits=12), unit) == pytest.approx(value, rel=1e-11)


@given(st.integers(1, 2**20), st.sampled_from([("KiB", "kB", 1), ("MiB", "MB", 2), ("GiB", "GB", 3), ("TiB", "TB", 4)]))
def test_binary_and_decimal_prefixes_differ_exactly(count: int, unit: tuple[str, str, int]) -> None:
    binary, decimal, power = unit
    assert parse_quantity(f"{count} {binary}", "byte") == count * 1024**power
    assert parse_quantity(f"{count} {decimal}", "byte") == count * 1000**power


@given(st.text(max_size=30), st.sampled_from((*UNITS, "1")))
def test_any_text_is_a_positive_number_or_a_sentence(text: str, unit: str) -> None:
    try:
        value = parse_quantity(text, unit)
    except InputError:
        return
    assert value > 0 and math.isfinite(value)
