"""`python -m benchmarks [NAME ...] [--json FILE]`: run benchmarks one after the other, each in its own process."""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.table import Row, from_dict, table
from benchmarks.timing import pin_to_one_core
from jaxperf.core.compiler_options import quicken_loops

# Name -> whether it is pinned to one core; what a user waits for is not.
BENCHMARKS = {
    "vs_numpy": True,
    "vs_llm_analysis": True,
    "fraction_of_copy": True,
    "one_compile": True,
    "million_sweep": False,
    "kernel_table": False,
    "graph_grid": False,
    "training_sweep": True,
    "stochastic": True,
    "loopnest": True,
    "mapper": True,
    "simulator": True,
    "fleet": True,
    "steady_state": True,
    "cold_start": False,
    "compile_time": True,
}
# Those of what commands compute with quick loops.
QUICK = {
    "vs_numpy",
    "vs_llm_analysis",
    "fraction_of_copy",
    "one_compile",
    "kernel_table",
    "training_sweep",
    "simulator",
    "fleet",
    "steady_state",
}
ROOT = Path(__file__).parents[1]


def main() -> int:
    """Run what was asked for; exit code 1 if a benchmark failed. A missed target is printed, not an error."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Ratios measured in one run.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of: {', '.join(BENCHMARKS)} (default: all)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows to FILE")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    for name in given.names:
        if name not in BENCHMARKS:
            parser.error(f"unknown benchmark '{name}'; allowed: {', '.join(BENCHMARKS)}")
    if given.child:
        return run_here(given.names[0], given.child)
    rows, failed = [], []
    for name in given.names or BENCHMARKS:
        print(f"running {name} ...", file=sys.stderr, flush=True)
        found = run_apart(name)
        rows += found or []
        failed += [name] * (found is None)
    print(table(rows))
    print("\n" + machine())
    for name in failed:
        print(f"{name} FAILED; its error is above.")
    if given.json:
        result = {"machine": machine(), "rows": [row.to_dict() for row in rows], "failed": failed}
        given.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 1 if failed else 0


def run_apart(name: str) -> list[Row] | None:
    """The rows of one benchmark, run in a fresh process; `None` if it failed."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "rows.json")
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
        command = [sys.executable, "-m", "benchmarks", name, "--child", str(answer)]
        if subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode:
            return None
        return [from_dict(row) for row in json.loads(answer.read_text(encoding="utf-8"))]


def run_here(name: str, answer: Path) -> int:
    """Run one benchmark in this process and write its rows to `answer`."""
    if BENCHMARKS[name]:
        pin_to_one_core()  # before the benchmark imports jax
    if name in QUICK:
        quicken_loops()
    rows = importlib.import_module(f"benchmarks.{name}").run()
    answer.write_text(json.dumps([row.to_dict() for row in rows]), encoding="utf-8")
    return 0


def machine() -> str:
    """Where the figures come from."""
    versions = [f"{package} {importlib.metadata.version(package)}" for package in ("jax", "jaxlib", "numpy")]
    processor = platform.machine()
    information = Path("/proc/cpuinfo")
    if information.exists():
        models = [line.split(":")[1].strip() for line in information.read_text().splitlines() if "model name" in line]
        processor = models[0] if models else processor
    return f"{processor}, {os.cpu_count()} cores; Python {platform.python_version()}, {', '.join(versions)}"


if __name__ == "__main__":
    sys.exit(main())
