"""What `estimate` says of the techniques it was asked about: a line each, and the same as plain data."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxperf.serving.estimate import Estimate

PHASES = ("prefill", "decode")
UNCALIBRATED = "uncalibrated (one device was metered, none under a limit)"


def technique_record(answer: Estimate) -> dict[str, Any]:
    """All that there is to tell, SI units; None for what is not a number."""
    import numpy as np

    told: dict[str, Any] = {name: np.asarray(value).tolist() for name, value in answer.explanation.told.items()}
    if math.isfinite(answer.break_even):
        told["break_even_batch"] = answer.break_even
    if math.isfinite(answer.paying):
        told["two_batches_pay_from"] = answer.paying
    if answer.techniques is not None and answer.techniques.cap is not None:
        told["energy_calibrated"] = _energy_calibrated()
        limit = float(answer.techniques.cap.limit) * (1.0 + 1e-6)
        told["limit_met"] = all(told[f"{phase}_power"] <= limit for phase in PHASES)
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in told.items()}


def technique_lines(answer: Estimate) -> list[str]:
    """One line a technique; none where the configuration cannot run."""
    techniques = answer.techniques
    if techniques is None or not answer.feasible:
        return []
    told = technique_record(answer)
    lines = []
    if techniques.speculation is not None:
        lines.append(_speculation(answer, told))
    if techniques.adapters is not None:
        lines.append(_adapters(answer, told))
    if techniques.offload is not None:
        lines.append(_offload(told))
    if techniques.copies is not None:
        lines.append(_copies(answer, told))
    if techniques.two_batches:
        lines.append(_two_batches(answer, told))
    if techniques.cap is not None:
        lines.append(_power(answer, told))
    return lines


def _speculation(answer: Estimate, told: dict[str, Any]) -> str:
    from jaxperf.report.text import milliseconds, number

    share = told["draft_time"] / told["round_time"]
    faster = told["plain_tpot"] / float(answer.explanation.metrics["tpot"])
    until = (
        f"no gain from batch {answer.break_even:.0f} on" if math.isfinite(answer.break_even) else "a gain at any batch"
    )
    chances = ", ".join(f"{count} {chance:.0%}" for count, chance in enumerate(told["token_distribution"], start=1))
    return (
        f"speculate  {number(told['tokens_per_round'])} tokens a round ({chances}) of "
        f"{milliseconds(told['round_time'])} ms, {share:.0%} of it the draft; TPOT {number(faster)} x as fast as the "
        f"plain {milliseconds(told['plain_tpot'])} ms; {until}"
    )


def _adapters(answer: Estimate, told: dict[str, Any]) -> str:
    from jaxperf.report.text import milliseconds, number, quantity

    slower = float(answer.explanation.metrics["tpot"]) / told["plain_tpot"]
    return (
        f"lora       {number(told['distinct_adapters'])} adapters in a step of decode, "
        f"{quantity(told['adapter_bytes'], 'byte')} each a device; TPOT {number(slower)} x the plain one; "
        f"{told['miss_share']:.1%} of the requests load theirs, {milliseconds(told['swap_time'])} ms on average"
    )


def _offload(told: dict[str, Any]) -> str:
    from jaxperf.report.text import milliseconds

    def of(phase: str) -> str:
        load, wait = (milliseconds(told[f"{phase}_{name}"]) for name in ("load", "wait"))
        return f"{phase}: {load} ms of loading, {wait} ms not hidden"

    return f"kv-offload {'; '.join(map(of, PHASES))}; plain TTFT {milliseconds(told['plain_ttft'])} ms"


def _copies(answer: Estimate, told: dict[str, Any]) -> str:
    from jaxperf.report.text import number, quantity

    count, uneven = float(answer.techniques.copies.count), number(told["skew"])  # type: ignore[union-attr]
    if not count:
        return f"experts    no copies: the busiest rank has {uneven} x the mean load"
    faster = "without copies it does not run"
    if told["tpot_without_copies"] is not None:
        ttft, tpot = (number(told[f"{name}_without_copies"] / told[f"plain_{name}"]) for name in ("ttft", "tpot"))
        faster = f"plain TTFT {ttft} x, TPOT {tpot} x as fast"
    return (
        f"experts    {count:.0f} copies, {quantity(told['copy_bytes'], 'byte')} of weights a device: the busiest rank "
        f"has {number(told['balanced_skew'])} x the mean load, {uneven} x without; {faster}"
    )


def _two_batches(answer: Estimate, told: dict[str, Any]) -> str:
    from jaxperf.report.text import milliseconds, number

    waits = ", ".join(f"{phase} waits {milliseconds(told[f'{phase}_exchange_left'])} ms" for phase in PHASES)
    metrics = answer.explanation.metrics
    ttft, tpot = (number(told[f"plain_{name}"] / float(metrics[name])) for name in ("ttft", "tpot"))
    pays = f"decode gains from batch {answer.paying:.0f} on" if math.isfinite(answer.paying) else "no gain in decode"
    return f"batches    two: {waits} for its exchange; TTFT {ttft} x, TPOT {tpot} x as fast as plain; {pays}"


def _power(answer: Estimate, told: dict[str, Any]) -> str:
    from jaxperf.report.text import number
    from jaxperf.serving.unit_costs import KILOWATT_HOUR, MILLION

    def of(phase: str) -> str:
        return f"{phase} {told[f'{phase}_power']:.0f} W at clock {told[f'{phase}_clock']:.2f}"

    limit = float(answer.techniques.cap.limit)  # type: ignore[union-attr]
    return (
        f"power      {', '.join(map(of, PHASES))} of {limit:.0f} W a device; "
        f"{number(told['drawn_energy_per_token'])} J/token drawn "
        f"({number(told['drawn_energy_per_token'] * MILLION / KILOWATT_HOUR)} kWh per million); "
        f"energy: {'calibrated' if told['energy_calibrated'] else UNCALIBRATED}"
        f"{'' if told['limit_met'] else '; the limit cannot be met at the lowest clock'}"
    )


def _energy_calibrated() -> bool:
    from calibration.power.parameters import load_power

    return load_power().calibrated
