"""YAML in: a loader that takes no key twice, and a check that aliases leave a tree of a size that can be walked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from hwspecs.errors import InputError

MOST = 1_000_000  # values of a file, each as often as aliases repeat it


class UniqueKeys(yaml.SafeLoader):
    """Safe YAML, except that a key given twice is a mistake and not silently the second one."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if key.value.__hash__ and key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key '{key.value}' is given twice", key.start_mark
                )
            seen |= {key.value} if key.value.__hash__ else set()
        return super().construct_mapping(node, deep)


def check_finite(data: Any, source: str) -> None:
    """Raises `InputError` for a value that holds itself, or is repeated in repetitions until there are too many."""
    waiting, walked = [data], 0
    while waiting:
        value = waiting.pop()
        inside = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
        walked += len(inside)
        if walked > MOST:
            raise InputError(
                f"{source}: an alias (*name) stands in what it names, or repeats it beyond {MOST:,} values."
            )
        waiting += inside
