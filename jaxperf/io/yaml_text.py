"""YAML in: a loader that takes no key twice, and a check that aliases leave a tree of a size that can be walked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from hwspecs.errors import InputError

MOST = 1_000_000  # values of a file, each as often as aliases repeat it


# What YAML 1.1 takes for numbers of base 8 and 60, and nobody who writes a count does.
OTHER_BASE = re.compile(r"[-+]?0[0-7_]+|[^:]+:.*")


class UniqueKeys(yaml.SafeLoader):
    """Safe YAML, except that three things are mistakes: a key given twice, not silently the second one, `010` and
    `1:30`, not silently 8 and 90, and half a character, which no text that is written can hold."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if key.value.__hash__ and key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key '{key.value}' is given twice", key.start_mark
                )
            seen |= {key.value} if key.value.__hash__ else set()
        return super().construct_mapping(node, deep)

    def construct_scalar(self, node: Any) -> Any:
        found = super().construct_scalar(node)
        half = re.search("[\ud800-\udfff]", found)
        if half:
            said = f"\\u{ord(half[0]):04x} is half a character; give the character itself"
            raise yaml.constructor.ConstructorError(None, None, said, node.start_mark)
        return found

    def construct_decimal(self, node: yaml.ScalarNode) -> int | float:
        if OTHER_BASE.fullmatch(node.value):
            said = f"'{node.value}' would be a number of base {60 if ':' in node.value else 8}; write it in base 10"
            raise yaml.constructor.ConstructorError(None, None, f"{said}, or in quotes", node.start_mark)
        whole = node.tag.endswith(":int")
        return self.construct_yaml_int(node) if whole else self.construct_yaml_float(node)


for _kind in ("int", "float"):
    UniqueKeys.add_constructor(f"tag:yaml.org,2002:{_kind}", UniqueKeys.construct_decimal)


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
