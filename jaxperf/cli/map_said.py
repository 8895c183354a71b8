"""What `jaxperf map` says of a mapping that was found."""

from __future__ import annotations

from typing import Any

WORDS = {"t": "", "x": " across X", "y": " across Y"}


def print_mapped(answer: dict[str, Any], quiet: bool) -> None:
    """The mapping as a table, its cost, the bound, and why others were refused; `quiet`: without the latter."""
    from jaxperf.report.text import console, quantity, table

    out = console()
    if answer["mapping"]:
        rows = [
            (
                block["level"],
                ", ".join(block["keep"]),
                "  ".join(f"{name} {bound}{WORDS[kind]}" for name, bound, kind in block["loops"]),
                quantity(answer["levels"][block["level"]]["energy_j"], "J", 5),
            )
            for block in answer["mapping"]
        ]
        out.print(table("Best mapping, loops outermost first", ("level", "keeps", "loops", "energy"), rows))
        out.print(
            f"EDP {answer['edp_j_cycle']:.6g} J cycle  energy {quantity(answer['energy_j'], 'J', 5)}  "
            f"cycles {answer['cycles']:,.0f}  utilization {answer['utilization']:.2%}  limited by {answer['limiter']}",
            soft_wrap=True,
        )
    else:
        out.print("No mapping that can run was found.")
    if answer["gap"] is not None:
        out.print(
            f"no mapping allowed has less {answer['objective']} than {answer['bound']:.6g}: {_gap(answer)}",
            soft_wrap=True,
        )
    if answer["interrupted"]:
        out.print("interrupted: the best until then")
    elif answer["bound"] is None:
        out.print("no bound: what each level keeps was searched, and a bound is of one choice of it")
    elif answer["bound"] == 0.0:
        out.print("no bound: the simple one is above the mapping found, so it is wrong; please report this case")
    if quiet and answer["mapping"]:
        return
    for note in answer.get("notes", ()):
        out.print(f"note: {note}", soft_wrap=True)
    out.print(f"{answer['evaluations']:,} mappings scored, {answer['seconds']:.1f} s with compilation", soft_wrap=True)
    for each in answer["rejected"]:
        out.print(f"rejected ({each['mappings']:,}): {each['reason']}", soft_wrap=True)


def _gap(answer: dict[str, Any]) -> str:
    how = "every factoring was bounded" if answer["factorings_bounded"] else "a simple bound, the space is large"
    return f"at most {answer['gap']:.2%} to gain ({how})"
