"""What `jaxperf rl` says: the phases of an iteration as rows, and the whole as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PHASES = {
    "generate": "answers generated",
    "score": "answers scored",
    "train": "steps of training",
    "weights": "weights to who generates",
    "swap": "states to the host and back",
}


def rows_of(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row for every phase, and one for the iteration."""
    whole = {"seconds": "iteration_s", "lower": "iteration_lower_s", "upper": "iteration_upper_s"}
    total = {name: record[key] for name, key in whole.items()}
    return [{"phase": name, **record["phases"][name]} for name in PHASES] + [{"phase": "iteration", **total}]


def print_iteration(record: Mapping[str, Any], quiet: bool) -> None:
    """The phases, what the longest answers cost, memory, and notes."""
    from jaxperf.report.text import bold, console, print_notes, table

    out = console()
    out.print(bold(_title(record)), soft_wrap=True)
    if record["reason"]:
        out.print(f"not possible: {record['reason']}", soft_wrap=True)
        return
    total = record["iteration_s"]
    cells = [
        (PHASES[name], *_span(*each.values()), f"{each['seconds'] / total:.1%}")
        for name, each in record["phases"].items()
        if each["seconds"] > 0.0
    ]
    cells.append(("iteration", *_span(total, record["iteration_lower_s"], record["iteration_upper_s"]), ""))
    out.print(table("", ("phase", "s", "range", "of the iteration"), cells))
    for line in _lines(record):
        out.print(line, soft_wrap=True)
    print_notes(out, record["notes"], quiet)


def _span(seconds: float, lower: float, upper: float) -> tuple[str, str]:
    from jaxperf.report.text import interval, number

    return number(seconds), interval(lower, upper)


def _title(record: Mapping[str, Any]) -> str:
    models = ", ".join(f"{role} {name}" for role, name in record["models"].items())
    devices = f"{record['devices']} x {record['device']}"
    if record["generate_devices"] < record["devices"]:
        devices += f", {record['generate_devices']} of them to generate"
    return (
        f"{models} on {devices}: {record['answers']:,} answers of {record['mean_output']:,.0f} tokens in the mean, "
        f"{record['longest_output']:,} at most"
    )


def _lines(record: Mapping[str, Any]) -> list[str]:
    from jaxperf.report.text import gigabytes, number

    rates = f"{number(record['answers_per_second'])} answers/s, {number(record['output_tokens_per_second'])} tokens/s"
    times, tail, idle = 1.0 + record["straggler_penalty"], record["tail_share"], record["replicas_idle"]
    long = (
        f"generation takes {times:.2f} times what answers as long as the mean would; its last {tail:.0%} is for a "
        f"tenth of the answers, and replicas idle {idle:.0%}"
    )
    found = [rates, long]
    if record["cut_answers"]:
        found.append(f"{record['cut_answers']:,} answers were cut at longest_output")
    for role, each in record["training"].items():
        found.append(
            f"{role}: {record['steps']} steps of {record['step_sequences']:,} sequences of {record['step_sequence']:,} "
            f"tokens, MFU {each['mfu']:.0%}, {gigabytes(each['memory'])} of memory, {gigabytes(each['states'])} of "
            "states"
        )
    return found
