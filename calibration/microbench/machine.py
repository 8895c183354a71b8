"""What a measurement was taken on, as far as the system tells: processor, clocks, load, versions."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

from calibration.microbench.operation import JaxDevice

_CPU = Path("/sys/devices/system/cpu/cpu0")
_GPU_FACTS = ("name", "driver_version", "clocks.sm", "clocks.mem", "power.limit", "temperature.gpu")


def machine_facts(device: JaxDevice) -> dict[str, Any]:
    """The facts of a run; None for what cannot be read here."""
    versions = {name: version(name) for name in ("jax", "jaxlib", "numpy")}
    facts: dict[str, Any] = {
        "jax_device": device.device_kind,
        "platform": device.platform,
        "processor": processor_name(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": versions | {"python": platform.python_version()},
        "xla_flags": os.environ.get("XLA_FLAGS"),
    }
    return facts | ({"gpu": gpu_state()} if device.platform in ("gpu", "cuda") else {})


def machine_state() -> dict[str, Any]:
    """What changes while a run goes on: processor clock [Hz], governor, load of the last minute [1]."""
    return {
        "clock": _clock(),
        "governor": _read(_CPU / "cpufreq" / "scaling_governor"),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    }


def processor_name() -> str | None:
    """The processor as the system names it, which a hypervisor may have made anonymous."""
    found = re.search(r"^(?:model name|Hardware|Model)\s*:\s*(.+)$", _read(Path("/proc/cpuinfo")) or "", re.MULTILINE)
    return found.group(1).strip() if found else platform.processor() or None


def gpu_state() -> dict[str, str] | None:
    """Name, driver, clocks and power limit of the first GPU, in the words of nvidia-smi."""
    command = ["nvidia-smi", f"--query-gpu={','.join(_GPU_FACTS)}", "--format=csv,noheader", "--id=0"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return dict(zip(_GPU_FACTS, (part.strip() for part in told.strip().split(",")), strict=False))


def _clock() -> float | None:
    frequency = _read(_CPU / "cpufreq" / "scaling_cur_freq")
    if frequency:
        return 1e3 * float(frequency)
    found = re.search(r"^cpu MHz\s*:\s*([\d.]+)", _read(Path("/proc/cpuinfo")) or "", re.MULTILINE)
    return 1e6 * float(found.group(1)) if found else None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
