"""What a sweep is and where it is written: the fingerprint that lets a run resume, and the place it resumes in."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np

from hwspecs.errors import InputError
from jaxperf.sweeps.axes import Axis
from jaxperf.sweeps.run import Sweep

# Readers of Parquet folders skip names that begin with an underscore or a dot.
_MANIFEST = "_manifest.json"
_TEMPORARY = ".tmp-"
_FORMAT = 1

Fingerprint = Mapping[str, str]


def fingerprint(sweep: Sweep, identity: Mapping[str, str]) -> Fingerprint:
    """Hashes of everything that decides the rows: axes, formula, metrics, block shape and the caller's identity."""
    parts = {f"axis '{one.name}'": _axis_hash(one) for one in sweep.axes}
    parts["the order of axes"] = ", ".join(one.name for one in sweep.axes)
    parts["the formula or its constants"] = sweep.point.fingerprint()
    parts["metrics"] = ", ".join(f"{name} {dtype}" for name, dtype in sweep.metrics.items())
    parts["points per block"] = str(sweep.plan.block_points)
    parts["the file format"] = str(_FORMAT)
    return parts | {f"setting '{name}'": value for name, value in identity.items()}


@dataclass(frozen=True)
class Place:
    """Where results go: `target` as the user named it, `parts` the folder of finished blocks."""

    target: Path
    parts: Path

    @classmethod
    def named(cls, path: str | os.PathLike) -> Place:
        """A path ending in .parquet is one file, with parts beside it until it is finished; any other is a folder."""
        target = Path(path)
        single = target.suffix.lower() == ".parquet"
        return cls(target, target.with_name(target.name + ".parts") if single else target)

    @property
    def single(self) -> bool:
        return self.parts != self.target

    @property
    def manifest(self) -> Path:
        return self.parts / _MANIFEST

    def part(self, index: int) -> Path:
        return self.parts / f"part-{index:08d}.parquet"

    def temporary(self, final: Path) -> Path:
        """Where `final` is written before it is moved into place, always inside the parts folder."""
        return self.parts / f"{_TEMPORARY}{final.name}"

    def check(self) -> None:
        """**Raises:** `InputError` if the path cannot be what the user means, before anything is computed."""
        parent = self.target.absolute().parent
        if not parent.is_dir():
            raise InputError(f"Cannot write '{self.target}': the folder '{parent}' does not exist.")
        if self.single and self.target.is_dir():
            raise InputError(f"Cannot write '{self.target}': it is a folder; name a file or another folder.")
        if self.parts.exists() and not self.parts.is_dir():
            raise InputError(f"Cannot write '{self.target}': '{self.parts}' is a file where a folder is needed.")

    def found(self, overwrite: bool = False) -> Fingerprint | None:
        """The fingerprint of the sweep whose parts are here, or `None` for no parts.

        **Raises:** `InputError` for a damaged manifest (unless it is to be overwritten) or Parquet files that are not
        ours, which are never overwritten.
        """
        if self.manifest.exists():
            try:
                return dict(json.loads(self.manifest.read_text(encoding="utf-8")))
            except (ValueError, TypeError):
                if overwrite:
                    return {}
                raise InputError(f"'{self.manifest}' is damaged; delete '{self.parts}' to start again.") from None
        if self.parts.is_dir() and next(self.parts.glob("*.parquet"), None) is not None:
            raise InputError(f"'{self.parts}' holds Parquet files of something else; name an empty folder.")
        return None

    def open(self, mine: Fingerprint) -> None:
        """Create the folder and its manifest, which also proves that it can be written.

        **Raises:** `OSError` if it cannot.
        """
        self.parts.mkdir(exist_ok=True)
        for stale in self.parts.glob(f"{_TEMPORARY}*"):  # left by a killed run
            stale.unlink()
        temporary = self.temporary(self.manifest)
        try:
            temporary.write_text(json.dumps(mine, indent=2) + "\n", encoding="utf-8")
            os.replace(temporary, self.manifest)
        finally:
            temporary.unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove the parts, and their folder where it was only ours."""
        for path in [*self.parts.glob("part-*.parquet"), *self.parts.glob(f"{_TEMPORARY}*")]:
            path.unlink()
        self.manifest.unlink(missing_ok=True)
        if self.single and self.parts.is_dir() and not any(self.parts.iterdir()):
            self.parts.rmdir()


def require_same(where: Path, found: Fingerprint, mine: Fingerprint) -> None:
    """**Raises:** `InputError` if the results at `where` belong to another sweep, saying what differs."""
    differing = [name for name in {**mine, **found} if mine.get(name) != found.get(name)]
    if differing:
        raise InputError(
            f"'{where}' holds results of a different sweep ({', '.join(differing)} changed): "
            "name another path, delete it, or ask to overwrite it."
        )


def from_text(stored: str | None) -> Fingerprint | None:
    """The fingerprint that a file states as JSON; `None` where it states none, or is damaged there."""
    try:
        found = json.loads(stored or "null")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def require_mine(where: Path, stored: str | None, mine: Fingerprint) -> None:
    """**Raises:** `InputError` unless `stored`, what the file at `where` says of its sweep as JSON, is `mine`."""
    found = from_text(stored)
    if found is None:
        raise InputError(
            f"'{where}' exists and is not the result of a sweep: name another path, delete it, or ask to overwrite it."
        )
    require_same(where, found, mine)


def _axis_hash(one: Axis) -> str:
    """Labels and values: an edited device file is another sweep even if every name stays."""
    digest = hashlib.sha256()
    for column, labels in one.labels.items():
        digest.update(repr((column, str(labels.dtype), labels.tolist())).encode())
    for key, tree in one.arguments.items():
        digest.update(key.encode())
        for leaf in jax.tree.leaves(tree):
            array = np.ascontiguousarray(leaf)
            digest.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
    return digest.hexdigest()
